// SPDX-License-Identifier: GPL-2.0

//! Reads expressions in mangled C++ names: values of template arguments, and operands of decltype.

use super::cpp::CppNameParser;

/// The code of each operator in mangled names, and its text in C++.
const OPERATORS: [(&[u8; 2], &str); 52] = [
    (b"nw", "new"),
    (b"na", "new[]"),
    (b"dl", "delete"),
    (b"da", "delete[]"),
    (b"aw", "co_await"),
    (b"ps", "+"),
    (b"ng", "-"),
    (b"ad", "&"),
    (b"de", "*"),
    (b"co", "~"),
    (b"pl", "+"),
    (b"mi", "-"),
    (b"ml", "*"),
    (b"dv", "/"),
    (b"rm", "%"),
    (b"an", "&"),
    (b"or", "|"),
    (b"eo", "^"),
    (b"aS", "="),
    (b"pL", "+="),
    (b"mI", "-="),
    (b"mL", "*="),
    (b"dV", "/="),
    (b"rM", "%="),
    (b"aN", "&="),
    (b"oR", "|="),
    (b"eO", "^="),
    (b"ls", "<<"),
    (b"rs", ">>"),
    (b"lS", "<<="),
    (b"rS", ">>="),
    (b"eq", "=="),
    (b"ne", "!="),
    (b"lt", "<"),
    (b"gt", ">"),
    (b"le", "<="),
    (b"ge", ">="),
    (b"ss", "<=>"),
    (b"nt", "!"),
    (b"aa", "&&"),
    (b"oo", "||"),
    (b"pp", "++"),
    (b"mm", "--"),
    (b"cm", ","),
    (b"pm", "->*"),
    (b"pt", "->"),
    (b"cl", "()"),
    (b"ix", "[]"),
    (b"qu", "?"),
    (b"ds", ".*"),
    (b"dt", "."),
    (b"nx", "noexcept"),
];

/// Operators with one operand.
const UNARY_OPERATORS: [&[u8; 2]; 7] = [b"ps", b"ng", b"ad", b"de", b"co", b"nt", b"aw"];

/// Operators that are written like calls. The operators in `CALL_LIKE_OPERATORS_ON_TYPES` have a
/// type as operand, and the operators in `CALL_LIKE_OPERATORS_ON_EXPRESSIONS` have an expression.
const CALL_LIKE_OPERATORS_ON_TYPES: [(&str, &str); 3] =
    [("st", "sizeof "), ("at", "alignof "), ("ti", "typeid ")];
const CALL_LIKE_OPERATORS_ON_EXPRESSIONS: [(&str, &str); 4] = [
    ("sz", "sizeof "),
    ("az", "alignof "),
    ("te", "typeid "),
    ("nx", "noexcept "),
];
const CAST_OPERATORS: [(&str, &str); 4] = [
    ("dc", "dynamic_cast"),
    ("sc", "static_cast"),
    ("cc", "const_cast"),
    ("rc", "reinterpret_cast"),
];

impl CppNameParser<'_> {
    /// Reads the two-letter code of an operator. Returns its text in C++.
    pub fn read_operator(&mut self) -> Option<&'static str> {
        let code = [self.peek_byte(), self.peek_byte_at(1)];
        let (_, text) = OPERATORS.iter().find(|(known, _)| **known == code)?;
        self.position += 2;
        Some(text)
    }

    pub fn read_expression(&mut self) -> Option<String> {
        self.read_nested_part(Self::read_expression_of_any_form)
    }

    /// Reads expressions until the letter E. Returns the expressions with commas between them.
    fn read_expression_list(&mut self) -> Option<String> {
        let mut all = Vec::new();
        while !self.skip_prefix("E") {
            all.push(self.read_expression()?);
        }
        self.limits.join_with_commas(&all)
    }

    fn read_expression_of_any_form(&mut self) -> Option<String> {
        let global = if self.skip_prefix("gs") { "::" } else { "" };
        let code = [self.peek_byte(), self.peek_byte_at(1)];
        match code {
            [b'L', _] => return self.read_literal(),
            [b'T', _] => {
                let text = self.read_template_parameter()?;
                return self.limits.join_two_parts(&text);
            }
            [b'f', b'p' | b'L'] if code[1] == b'p' || self.peek_byte_at(2).is_ascii_digit() => {
                return self.read_function_parameter()
            }
            [b'f', b'l' | b'r' | b'L' | b'R'] => return self.read_fold_expression(),
            [b'0'..=b'9', _] | [b'o', b'n'] | [b's', b'r'] | [b'd', b'n'] => {
                let name = self.read_unresolved_name()?;
                return self.limits.join(&[global, &name]);
            }
            [b'r', b'q' | b'Q'] => return self.read_requires_expression(),
            _ => {}
        }
        let is_call = |(code, _): &&(&str, &str)| self.is_code_next(code);
        if let Some((_, text)) = CALL_LIKE_OPERATORS_ON_TYPES.iter().find(is_call) {
            self.position += 2;
            let of = self.read_type_text()?;
            return self.limits.join(&[text, "(", &of, ")"]);
        }
        if let Some((_, text)) = CALL_LIKE_OPERATORS_ON_EXPRESSIONS.iter().find(is_call) {
            self.position += 2;
            let of = self.read_expression()?;
            return self.limits.join(&[text, "(", &of, ")"]);
        }
        if let Some((_, text)) = CAST_OPERATORS.iter().find(is_call) {
            self.position += 2;
            let to = self.read_type_text()?;
            let of = self.read_expression()?;
            return self.limits.join(&[text, "<", &to, ">(", &of, ")"]);
        }
        match &code {
            b"cl" | b"cp" => {
                self.position += 2;
                let function = self.read_expression()?;
                let arguments = self.read_expression_list()?;
                self.limits.join(&[&function, "(", &arguments, ")"])
            }
            b"cv" => {
                self.position += 2;
                let to = self.read_type_text()?;
                if self.skip_prefix("_") {
                    let values = self.read_expression_list()?;
                    return self.limits.join(&[&to, "(", &values, ")"]);
                }
                let value = self.read_expression()?;
                self.limits.join(&["(", &to, ")(", &value, ")"])
            }
            b"tl" => {
                self.position += 2;
                let of = self.read_type_text()?;
                let values = self.read_expression_list()?;
                self.limits.join(&[&of, "{", &values, "}"])
            }
            b"il" => {
                self.position += 2;
                let values = self.read_expression_list()?;
                self.limits.join(&["{", &values, "}"])
            }
            b"nw" | b"na" => self.read_new_expression(global),
            b"dl" | b"da" => {
                let text = self.read_operator()?;
                let of = self.read_expression()?;
                self.limits.join(&[global, text, " ", &of])
            }
            b"dt" | b"pt" => {
                let sign = self.read_operator()?;
                let object = self.read_expression()?;
                let member = self.read_unresolved_name()?;
                self.limits.join(&[&object, sign, &member])
            }
            b"qu" => {
                self.position += 2;
                let condition = self.read_expression()?;
                let (yes, no) = (self.read_expression()?, self.read_expression()?);
                let parts = ["(", &condition, ")?(", &yes, ") : (", &no, ")"];
                self.limits.join(&parts)
            }
            b"ix" => {
                self.position += 2;
                let (array, index) = (self.read_expression()?, self.read_expression()?);
                self.limits.join(&["(", &array, ")[", &index, "]"])
            }
            b"pp" | b"mm" => {
                let sign = self.read_operator()?;
                match self.skip_prefix("_") {
                    true => {
                        let of = self.read_expression()?;
                        self.limits.join(&[sign, "(", &of, ")"])
                    }
                    false => {
                        let of = self.read_expression()?;
                        self.limits.join(&["(", &of, ")", sign])
                    }
                }
            }
            b"sZ" => {
                self.position += 2;
                self.read_size_of_pack()
            }
            b"sP" => {
                self.position += 2;
                let mut texts = Vec::new();
                while !self.skip_prefix("E") {
                    texts.push(self.read_type_text()?);
                }
                let list = self.limits.join_with_commas(&texts)?;
                self.limits.join(&["sizeof...(", &list, ")"])
            }
            b"sp" => {
                self.position += 2;
                match self.expand_pack(Self::read_expression)? {
                    Ok(elements) => self.limits.join_with_commas(&elements),
                    Err(pattern) => self.limits.join(&[&pattern, "..."]),
                }
            }
            b"tw" => {
                self.position += 2;
                let value = self.read_expression()?;
                self.limits.join(&["throw ", &value])
            }
            b"tr" => {
                self.position += 2;
                Some("throw".to_owned())
            }
            _ if UNARY_OPERATORS.contains(&&code) => {
                let sign = self.read_operator()?;
                let of = self.read_expression()?;
                let of = self.parenthesize_operand(&of)?;
                self.limits.join(&[sign, &of])
            }
            _ => {
                let sign = self.read_operator()?;
                let (one, other) = (self.read_expression()?, self.read_expression()?);
                let (one, other) = (
                    self.parenthesize_operand(&one)?,
                    self.parenthesize_operand(&other)?,
                );
                match sign {
                    // Without parentheses, a > would end the list of template arguments.
                    ">" => self.limits.join(&["(", &one, sign, &other, ")"]),
                    _ => self.limits.join(&[&one, sign, &other]),
                }
            }
        }
    }

    fn is_code_next(&self, code: &str) -> bool {
        let code = code.as_bytes();
        (self.peek_byte(), self.peek_byte_at(1)) == (code[0], code[1])
    }

    /// Returns the text of an operand. If the operand is more than a name, it is put in
    /// parentheses.
    fn parenthesize_operand(&mut self, text: &str) -> Option<String> {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
        match text.chars().all(is_name) && !text.starts_with(|c: char| c.is_ascii_digit()) {
            true => Some(text.to_owned()),
            false => self.limits.join(&["(", text, ")"]),
        }
    }

    /// Reads a literal: either a value with its type, or the name of an object or function.
    pub fn read_literal(&mut self) -> Option<String> {
        self.read_nested_part(Self::read_literal_of_any_form)
    }

    fn read_literal_of_any_form(&mut self) -> Option<String> {
        self.expect_text("L")?;
        if self.skip_prefix("_Z") || self.skip_prefix("Z") {
            let name = self.read_encoding(true)?;
            self.expect_text("E")?;
            return Some(name);
        }
        let kind = self.peek_byte();
        let of = self.read_type_text()?;
        let negative = if self.skip_prefix("n") { "-" } else { "" };
        let mut value = String::new();
        while !self.skip_prefix("E") {
            match self.peek_byte() {
                byte @ (b'0'..=b'9' | b'a'..=b'f' | b'_') => value.push(char::from(byte)),
                _ => return None,
            }
            self.position += 1;
        }
        let suffix = match kind {
            b'b' if value == "0" => return Some("false".to_owned()),
            b'b' if value == "1" => return Some("true".to_owned()),
            b'i' => "",
            b'j' => "u",
            b'l' => "l",
            b'm' => "ul",
            b'x' => "ll",
            b'y' => "ull",
            _ => return self.limits.join(&["(", &of, ")", negative, &value]),
        };
        self.limits.join(&[negative, &value, suffix])
    }

    fn read_function_parameter(&mut self) -> Option<String> {
        if self.skip_prefix("fpT") {
            return Some("this".to_owned());
        }
        if self.skip_prefix("fL") {
            self.read_number()?;
            self.expect_text("p")?;
        } else {
            self.expect_text("fp")?;
        }
        self.read_qualifiers();
        let number = self.read_index_before_underscore()? + 1;
        Some(format!("{{parm#{number}}}"))
    }

    fn read_fold_expression(&mut self) -> Option<String> {
        let kind = self.peek_byte_at(1);
        self.position += 2;
        let sign = self.read_operator()?;
        let pack = self.read_expression()?;
        match kind {
            b'l' => self.limits.join(&["(...", sign, &pack, ")"]),
            b'r' => self.limits.join(&["(", &pack, sign, "...)"]),
            _ => {
                let other = self.read_expression()?;
                self.limits
                    .join(&["(", &pack, sign, "...", sign, &other, ")"])
            }
        }
    }

    fn read_new_expression(&mut self, global: &str) -> Option<String> {
        let text = self.read_operator()?;
        let mut place = Vec::new();
        while !self.skip_prefix("_") {
            place.push(self.read_expression()?);
        }
        let place = self.limits.join_with_commas(&place)?;
        let of = self.read_type_text()?;
        let place = match place.is_empty() {
            true => String::new(),
            false => self.limits.join(&["(", &place, ") "])?,
        };
        let start = [global, text, " ", &place, &of];
        let start = self.limits.join(&start)?;
        if self.skip_prefix("E") {
            return Some(start);
        }
        if self.skip_prefix("pi") {
            let values = self.read_expression_list()?;
            return self.limits.join(&[&start, "(", &values, ")"]);
        }
        let values = self.read_expression()?;
        self.expect_text("E")?;
        self.limits.join(&[&start, &values])
    }

    fn read_size_of_pack(&mut self) -> Option<String> {
        let outer = (self.pack_index.take(), self.pack_length.take());
        let text = self.read_expression()?;
        let length = self.pack_length;
        (self.pack_index, self.pack_length) = outer;
        match length {
            Some(length) => Some(length.to_string()),
            None => self.limits.join(&["sizeof...(", &text, ")"]),
        }
    }

    /// Reads a name that depends on a template parameter.
    fn read_unresolved_name(&mut self) -> Option<String> {
        if !self.skip_prefix("sr") {
            return self.read_base_name();
        }
        let mut text = if self.skip_prefix("N") {
            let mut text = self.read_type_text()?;
            while !self.skip_prefix("E") {
                let part = self.read_base_name()?;
                text = self.limits.join(&[&text, "::", &part])?;
            }
            text
        } else {
            self.read_type_text()?
        };
        // After the type of an unresolved name, gcc encodes one name. clang encodes all qualifying
        // names, then the letter E, then the last name.
        while self.peek_byte().is_ascii_digit() && self.is_qualifier_next() {
            let part = self.read_base_name()?;
            text = self.limits.join(&[&text, "::", &part])?;
        }
        if self.peek_byte() == b'E' && self.peek_byte_at(1).is_ascii_digit() {
            self.position += 1;
        }
        let name = self.read_base_name()?;
        self.limits.join(&[&text, "::", &name])
    }

    /// Returns true if the next name is a qualifier. A qualifier is followed by another name, or by
    /// the letter E and another name.
    fn is_qualifier_next(&mut self) -> bool {
        let before = self.position;
        let length = self.read_number().unwrap_or(0);
        let follows = self.peek_byte_at(length);
        let after = self.peek_byte_at(length.saturating_add(1));
        self.position = before;
        follows.is_ascii_digit() || (follows == b'E' && after.is_ascii_digit())
    }

    fn read_base_name(&mut self) -> Option<String> {
        self.read_nested_part(|p| {
            let text = if p.skip_prefix("on") {
                let operator = p.read_operator()?;
                ["operator", operator].concat()
            } else if p.skip_prefix("dn") {
                let class = match p.peek_byte().is_ascii_digit() {
                    true => p.read_base_name()?,
                    false => p.read_type_text()?,
                };
                return p.limits.join(&["~", &class]);
            } else {
                p.read_source_name()?
            };
            match p.peek_byte() {
                b'I' => {
                    let name = super::text::TwoPartText::plain(&text);
                    Some(p.append_template_arguments(&name, false)?.left.to_string())
                }
                _ => Some(text),
            }
        })
    }

    /// Reads a C++20 requires expression. Returns `requires { ... }`, without the requirements.
    fn read_requires_expression(&mut self) -> Option<String> {
        let has_parameters = self.skip_prefix("rQ");
        if has_parameters {
            self.read_parameter_types()?;
            self.expect_text("_")?;
        } else {
            self.expect_text("rq")?;
        }
        while !self.skip_prefix("E") {
            if self.skip_prefix("X") {
                self.read_expression()?;
                self.skip_prefix("N");
                if self.skip_prefix("R") {
                    self.read_name(false)?;
                }
            } else if self.skip_prefix("T") {
                self.read_type_text()?;
            } else {
                self.expect_text("Q")?;
                self.read_expression()?;
            }
        }
        Some("requires { ... }".to_owned())
    }
}
