// SPDX-License-Identifier: GPL-2.0

//! Reads expressions in mangled C++ names: values of template arguments, and operands of decltype.

use super::cpp::Parser;

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
const UNARY: [&[u8; 2]; 7] = [b"ps", b"ng", b"ad", b"de", b"co", b"nt", b"aw"];

/// Operators that are written like calls. The operators in `CALLS_OF_TYPES` have a type as operand,
/// and the operators in `CALLS` have an expression.
const CALLS_OF_TYPES: [(&str, &str); 3] =
    [("st", "sizeof "), ("at", "alignof "), ("ti", "typeid ")];
const CALLS: [(&str, &str); 4] = [
    ("sz", "sizeof "),
    ("az", "alignof "),
    ("te", "typeid "),
    ("nx", "noexcept "),
];
const CASTS: [(&str, &str); 4] = [
    ("dc", "dynamic_cast"),
    ("sc", "static_cast"),
    ("cc", "const_cast"),
    ("rc", "reinterpret_cast"),
];

impl Parser<'_> {
    /// Reads the two-letter code of an operator. Returns its text in C++.
    pub fn operator(&mut self) -> Option<&'static str> {
        let code = [self.peek(), self.peek_at(1)];
        let (_, text) = OPERATORS.iter().find(|(known, _)| **known == code)?;
        self.at += 2;
        Some(text)
    }

    pub fn expression(&mut self) -> Option<String> {
        self.nest(Self::expression_text)
    }

    /// Reads expressions until the letter E. Returns the expressions with commas between them.
    fn expressions(&mut self) -> Option<String> {
        let mut all = Vec::new();
        while !self.take("E") {
            all.push(self.expression()?);
        }
        self.limits.join_list(&all)
    }

    fn expression_text(&mut self) -> Option<String> {
        let global = if self.take("gs") { "::" } else { "" };
        let code = [self.peek(), self.peek_at(1)];
        match code {
            [b'L', _] => return self.literal(),
            [b'T', _] => {
                let text = self.template_parameter()?;
                return self.limits.whole(&text);
            }
            [b'f', b'p' | b'L'] if code[1] == b'p' || self.peek_at(2).is_ascii_digit() => {
                return self.function_parameter()
            }
            [b'f', b'l' | b'r' | b'L' | b'R'] => return self.fold(),
            [b'0'..=b'9', _] | [b'o', b'n'] | [b's', b'r'] | [b'd', b'n'] => {
                let name = self.unresolved_name()?;
                return self.limits.join(&[global, &name]);
            }
            [b'r', b'q' | b'Q'] => return self.requires(),
            _ => {}
        }
        let is_call = |(code, _): &&(&str, &str)| self.input_starts_with(code);
        if let Some((_, text)) = CALLS_OF_TYPES.iter().find(is_call) {
            self.at += 2;
            let of = self.type_text()?;
            return self.limits.join(&[text, "(", &of, ")"]);
        }
        if let Some((_, text)) = CALLS.iter().find(is_call) {
            self.at += 2;
            let of = self.expression()?;
            return self.limits.join(&[text, "(", &of, ")"]);
        }
        if let Some((_, text)) = CASTS.iter().find(is_call) {
            self.at += 2;
            let to = self.type_text()?;
            let of = self.expression()?;
            return self.limits.join(&[text, "<", &to, ">(", &of, ")"]);
        }
        match &code {
            b"cl" | b"cp" => {
                self.at += 2;
                let function = self.expression()?;
                let arguments = self.expressions()?;
                self.limits.join(&[&function, "(", &arguments, ")"])
            }
            b"cv" => {
                self.at += 2;
                let to = self.type_text()?;
                if self.take("_") {
                    let values = self.expressions()?;
                    return self.limits.join(&[&to, "(", &values, ")"]);
                }
                let value = self.expression()?;
                self.limits.join(&["(", &to, ")(", &value, ")"])
            }
            b"tl" => {
                self.at += 2;
                let of = self.type_text()?;
                let values = self.expressions()?;
                self.limits.join(&[&of, "{", &values, "}"])
            }
            b"il" => {
                self.at += 2;
                let values = self.expressions()?;
                self.limits.join(&["{", &values, "}"])
            }
            b"nw" | b"na" => self.new_expression(global),
            b"dl" | b"da" => {
                let text = self.operator()?;
                let of = self.expression()?;
                self.limits.join(&[global, text, " ", &of])
            }
            b"dt" | b"pt" => {
                let sign = self.operator()?;
                let object = self.expression()?;
                let member = self.unresolved_name()?;
                self.limits.join(&[&object, sign, &member])
            }
            b"qu" => {
                self.at += 2;
                let condition = self.expression()?;
                let (yes, no) = (self.expression()?, self.expression()?);
                let parts = ["(", &condition, ")?(", &yes, ") : (", &no, ")"];
                self.limits.join(&parts)
            }
            b"ix" => {
                self.at += 2;
                let (array, index) = (self.expression()?, self.expression()?);
                self.limits.join(&["(", &array, ")[", &index, "]"])
            }
            b"pp" | b"mm" => {
                let sign = self.operator()?;
                match self.take("_") {
                    true => {
                        let of = self.expression()?;
                        self.limits.join(&[sign, "(", &of, ")"])
                    }
                    false => {
                        let of = self.expression()?;
                        self.limits.join(&["(", &of, ")", sign])
                    }
                }
            }
            b"sZ" => {
                self.at += 2;
                self.size_of_pack()
            }
            b"sP" => {
                self.at += 2;
                let mut texts = Vec::new();
                while !self.take("E") {
                    texts.push(self.type_text()?);
                }
                let list = self.limits.join_list(&texts)?;
                self.limits.join(&["sizeof...(", &list, ")"])
            }
            b"sp" => {
                self.at += 2;
                match self.expand_pack(Self::expression)? {
                    Ok(elements) => self.limits.join_list(&elements),
                    Err(pattern) => self.limits.join(&[&pattern, "..."]),
                }
            }
            b"tw" => {
                self.at += 2;
                let value = self.expression()?;
                self.limits.join(&["throw ", &value])
            }
            b"tr" => {
                self.at += 2;
                Some("throw".to_owned())
            }
            _ if UNARY.contains(&&code) => {
                let sign = self.operator()?;
                let of = self.expression()?;
                let of = self.operand(&of)?;
                self.limits.join(&[sign, &of])
            }
            _ => {
                let sign = self.operator()?;
                let (one, other) = (self.expression()?, self.expression()?);
                let (one, other) = (self.operand(&one)?, self.operand(&other)?);
                match sign {
                    // Without parentheses, a > would end the list of template arguments.
                    ">" => self.limits.join(&["(", &one, sign, &other, ")"]),
                    _ => self.limits.join(&[&one, sign, &other]),
                }
            }
        }
    }

    fn input_starts_with(&self, code: &str) -> bool {
        let code = code.as_bytes();
        (self.peek(), self.peek_at(1)) == (code[0], code[1])
    }

    /// Returns the text of an operand. If the operand is more than a name, it is put in
    /// parentheses.
    fn operand(&mut self, text: &str) -> Option<String> {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
        match text.chars().all(is_name) && !text.starts_with(|c: char| c.is_ascii_digit()) {
            true => Some(text.to_owned()),
            false => self.limits.join(&["(", text, ")"]),
        }
    }

    /// Reads a literal: either a value with its type, or the name of an object or function.
    pub fn literal(&mut self) -> Option<String> {
        self.nest(Self::literal_text)
    }

    fn literal_text(&mut self) -> Option<String> {
        self.need("L")?;
        if self.take("_Z") || self.take("Z") {
            let name = self.encoding(true)?;
            self.need("E")?;
            return Some(name);
        }
        let kind = self.peek();
        let of = self.type_text()?;
        let negative = if self.take("n") { "-" } else { "" };
        let mut value = String::new();
        while !self.take("E") {
            match self.peek() {
                byte @ (b'0'..=b'9' | b'a'..=b'f' | b'_') => value.push(char::from(byte)),
                _ => return None,
            }
            self.at += 1;
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

    fn function_parameter(&mut self) -> Option<String> {
        if self.take("fpT") {
            return Some("this".to_owned());
        }
        if self.take("fL") {
            self.number()?;
            self.need("p")?;
        } else {
            self.need("fp")?;
        }
        self.qualifiers();
        let number = self.sequence_number()? + 1;
        Some(format!("{{parm#{number}}}"))
    }

    fn fold(&mut self) -> Option<String> {
        let kind = self.peek_at(1);
        self.at += 2;
        let sign = self.operator()?;
        let pack = self.expression()?;
        match kind {
            b'l' => self.limits.join(&["(...", sign, &pack, ")"]),
            b'r' => self.limits.join(&["(", &pack, sign, "...)"]),
            _ => {
                let other = self.expression()?;
                self.limits
                    .join(&["(", &pack, sign, "...", sign, &other, ")"])
            }
        }
    }

    fn new_expression(&mut self, global: &str) -> Option<String> {
        let text = self.operator()?;
        let mut place = Vec::new();
        while !self.take("_") {
            place.push(self.expression()?);
        }
        let place = self.limits.join_list(&place)?;
        let of = self.type_text()?;
        let place = match place.is_empty() {
            true => String::new(),
            false => self.limits.join(&["(", &place, ") "])?,
        };
        let start = [global, text, " ", &place, &of];
        let start = self.limits.join(&start)?;
        if self.take("E") {
            return Some(start);
        }
        if self.take("pi") {
            let values = self.expressions()?;
            return self.limits.join(&[&start, "(", &values, ")"]);
        }
        let values = self.expression()?;
        self.need("E")?;
        self.limits.join(&[&start, &values])
    }

    fn size_of_pack(&mut self) -> Option<String> {
        let outer = (self.pack_index.take(), self.pack_length.take());
        let text = self.expression()?;
        let length = self.pack_length;
        (self.pack_index, self.pack_length) = outer;
        match length {
            Some(length) => Some(length.to_string()),
            None => self.limits.join(&["sizeof...(", &text, ")"]),
        }
    }

    /// Reads a name that depends on a template parameter.
    fn unresolved_name(&mut self) -> Option<String> {
        if !self.take("sr") {
            return self.base_name();
        }
        let mut text = if self.take("N") {
            let mut text = self.type_text()?;
            while !self.take("E") {
                let part = self.base_name()?;
                text = self.limits.join(&[&text, "::", &part])?;
            }
            text
        } else {
            self.type_text()?
        };
        // After the type of an unresolved name, gcc encodes one name. clang encodes all qualifying
        // names, then the letter E, then the last name.
        while self.peek().is_ascii_digit() && self.is_qualifier() {
            let part = self.base_name()?;
            text = self.limits.join(&[&text, "::", &part])?;
        }
        if self.peek() == b'E' && self.peek_at(1).is_ascii_digit() {
            self.at += 1;
        }
        let name = self.base_name()?;
        self.limits.join(&[&text, "::", &name])
    }

    /// Returns true if the next name is a qualifier. A qualifier is followed by another name, or by
    /// the letter E and another name.
    fn is_qualifier(&mut self) -> bool {
        let before = self.at;
        let length = self.number().unwrap_or(0);
        let follows = self.peek_at(length);
        let after = self.peek_at(length.saturating_add(1));
        self.at = before;
        follows.is_ascii_digit() || (follows == b'E' && after.is_ascii_digit())
    }

    fn base_name(&mut self) -> Option<String> {
        self.nest(|p| {
            let text = if p.take("on") {
                let operator = p.operator()?;
                ["operator", operator].concat()
            } else if p.take("dn") {
                let class = match p.peek().is_ascii_digit() {
                    true => p.base_name()?,
                    false => p.type_text()?,
                };
                return p.limits.join(&["~", &class]);
            } else {
                p.source_name()?
            };
            match p.peek() {
                b'I' => {
                    let name = super::text::Text::plain(&text);
                    Some(p.with_arguments(&name, false)?.left.to_string())
                }
                _ => Some(text),
            }
        })
    }

    /// Reads a C++20 requires expression. Returns `requires { ... }`, without the requirements.
    fn requires(&mut self) -> Option<String> {
        let has_parameters = self.take("rQ");
        if has_parameters {
            self.parameters()?;
            self.need("_")?;
        } else {
            self.need("rq")?;
        }
        while !self.take("E") {
            if self.take("X") {
                self.expression()?;
                self.take("N");
                if self.take("R") {
                    self.name(false)?;
                }
            } else if self.take("T") {
                self.type_text()?;
            } else {
                self.need("Q")?;
                self.expression()?;
            }
        }
        Some("requires { ... }".to_owned())
    }
}
