# SPDX-License-Identifier: GPL-2.0
#
# Extracts the blocks of the documentation, so that tests can run and compile them. Each block is
# written to the file OUT/PAGE.LINE, with a line "PAGE LINE LANGUAGE WORDS" in OUT/index. A block
# without a fence, or with no word after its fence, has the language "untagged".
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

# Four blanks after an empty line begin a block. In a list, four blanks continue the item.
/^    / && blank && !list { print page, FNR, "untagged" >(out "/index"); list = 1 }
/^[-*0-9]/ { list = 1 }
/^[^ ]/ && !/^[-*0-9]/ { list = 0 }
{ blank = $0 == "" }
END { if (inside) print page, FNR, "untagged" >(out "/index") }
