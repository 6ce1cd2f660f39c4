# SPDX-License-Identifier: GPL-2.0
#
# Takes the blocks out of the documentation, so that tests can run and compile them: each
# becomes the file OUT/PAGE.LINE, and a line "PAGE LINE LANGUAGE WORDS" of OUT/index. A block
# that is not fenced, or says nothing behind its fence, has the language "untagged".
# awk -v out=OUT -f blocks.awk PAGE...

FNR == 1 { page = FILENAME; sub(/.*\//, "", page); inside = 0; blank = 1 }

/^```/ && !inside {
	inside = 1
	words = substr($0, 4)
	file = out "/" page "." FNR
	printf "" >file
	print page, FNR, words == "" ? "untagged" : words >(out "/index")
	next
}
/^```$/ && inside { inside = 0; close(file); blank = 0; next }
inside { print >file; next }

# Four blanks after an empty line; in a list they go on with it.
/^    / && blank && !list { print page, FNR, "untagged" >(out "/index"); list = 1 }
/^[-*0-9]/ { list = 1 }
/^[^ ]/ && !/^[-*0-9]/ { list = 0 }
{ blank = $0 == "" }
END { if (inside) print page, FNR, "untagged" >(out "/index") }
