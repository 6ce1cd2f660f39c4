// SPDX-License-Identifier: GPL-2.0

//! Reads types in mangled C++ names, and references to earlier parts of a name.

use super::cpp::{Parser, MARK, MARK_END};
use super::text::{Argument, Shape, Text};

/// Builtin types that are encoded as one letter.
const BUILTIN: [(u8, &str); 22] = [
    (b'v', "void"),
    (b'w', "wchar_t"),
    (b'b', "bool"),
    (b'c', "char"),
    (b'a', "signed char"),
    (b'h', "unsigned char"),
    (b's', "short"),
    (b't', "unsigned short"),
    (b'i', "int"),
    (b'j', "unsigned int"),
    (b'l', "long"),
    (b'm', "unsigned long"),
    (b'x', "long long"),
    (b'y', "unsigned long long"),
    (b'n', "__int128"),
    (b'o', "unsigned __int128"),
    (b'f', "float"),
    (b'd', "double"),
    (b'e', "long double"),
    (b'g', "__float128"),
    (b'z', "..."),
    (b'k', "auto"),
];

/// Builtin types that are encoded as D and a letter.
const BUILTIN_D: [(u8, &str); 10] = [
    (b'd', "decimal64"),
    (b'e', "decimal128"),
    (b'f', "decimal32"),
    (b'h', "half"),
    (b'i', "char32_t"),
    (b's', "char16_t"),
    (b'u', "char8_t"),
    (b'a', "auto"),
    (b'c', "decltype(auto)"),
    (b'n', "decltype(nullptr)"),
];

/// Abbreviations of names in std: the letter after S, the name, and the full name without std::. A
/// full name with template arguments replaces the abbreviation before a constructor or destructor.
const STD: [(u8, &str, &str); 6] = [
    (b'a', "std::allocator", "allocator"),
    (b'b', "std::basic_string", "basic_string"),
    (
        b's',
        "std::string",
        "basic_string<char, std::char_traits<char>, std::allocator<char> >",
    ),
    (
        b'i',
        "std::istream",
        "basic_istream<char, std::char_traits<char> >",
    ),
    (
        b'o',
        "std::ostream",
        "basic_ostream<char, std::char_traits<char> >",
    ),
    (
        b'd',
        "std::iostream",
        "basic_iostream<char, std::char_traits<char> >",
    ),
];

impl Parser<'_> {
    pub fn type_text(&mut self) -> Option<String> {
        let text = self.any_type()?;
        self.limits.whole(&text)
    }

    pub fn any_type(&mut self) -> Option<Text> {
        let start = self.at;
        let pack_length = self.pack_length.take();
        let (mut text, is_substitutable) = self.nest(Self::type_and_kind)?;
        if self.pack_length.is_some() && self.pack_index.is_none() {
            text.pack_at = Some(start);
        }
        self.pack_length = self.pack_length.max(pack_length);
        if is_substitutable {
            self.substitutions.push(text.clone());
        }
        Some(text)
    }

    /// Reads a type. Returns the type, and true if later parts of the name may refer to the type by
    /// a substitution such as `S_`.
    fn type_and_kind(&mut self) -> Option<(Text, bool)> {
        let byte = self.peek();
        if let Some((_, text)) = BUILTIN.iter().find(|(letter, _)| *letter == byte) {
            self.at += 1;
            return Some((Text::plain(text), false));
        }
        let text = match byte {
            b'r' | b'V' | b'K' => {
                let qualifiers = self.qualifiers();
                if self.is_function_type() {
                    self.function_type(&qualifiers)?
                } else {
                    let mut text = self.any_type()?;
                    for qualifier in qualifiers {
                        text = self.limits.qualify(&text, qualifier)?;
                    }
                    text
                }
            }
            b'P' => self.pointer_type("*")?,
            b'R' => self.pointer_type("&")?,
            b'O' => self.pointer_type("&&")?,
            b'C' | b'G' => {
                let qualifier = match byte {
                    b'C' => "_Complex",
                    _ => "_Imaginary",
                };
                self.at += 1;
                let text = self.any_type()?;
                self.limits.qualify(&text, qualifier)?
            }
            _ if self.is_function_type() => self.function_type(&[])?,
            b'A' => self.array_type()?,
            b'M' => self.member_pointer_type()?,
            b'D' => return self.type_of_d(),
            b'T' if matches!(self.peek_at(1), b's' | b'u' | b'e') => {
                self.at += 2;
                self.name(false)?.text
            }
            b'T' => {
                let text = self.template_parameter()?;
                if self.peek() == b'I' && !self.in_conversion {
                    self.substitutions.push(text.clone());
                    self.with_arguments(&text, false)?
                } else {
                    text
                }
            }
            b'S' if self.peek_at(1) != b't' => {
                let text = self.substitution(false)?;
                if self.peek() != b'I' {
                    return Some((text, false));
                }
                self.with_arguments(&text, false)?
            }
            b'u' => {
                self.at += 1;
                let text = Text::plain(&self.source_name()?);
                match self.peek() {
                    b'I' => self.with_arguments(&text, false)?,
                    _ => text,
                }
            }
            b'U' if !matches!(self.peek_at(1), b'l' | b't') => {
                self.at += 1;
                let mut qualifier = Text::plain(&self.source_name()?);
                if self.peek() == b'I' {
                    qualifier = self.with_arguments(&qualifier, false)?;
                }
                let text = self.any_type()?;
                self.limits.qualify(&text, &qualifier.left)?
            }
            _ => self.name(false)?.text,
        };
        Some((text, true))
    }

    /// Reads type qualifiers. Returns the qualifiers in the order of C++ text, which is the reverse
    /// of the order in the encoding.
    pub fn qualifiers(&mut self) -> Vec<&'static str> {
        let read = |(letter, text): &(&str, &'static str)| self.take(letter).then_some(*text);
        let mut all: Vec<&str> = [("r", "restrict"), ("V", "volatile"), ("K", "const")]
            .iter()
            .filter_map(read)
            .collect();
        all.reverse();
        all
    }

    fn pointer_type(&mut self, sign: &str) -> Option<Text> {
        self.at += 1;
        let to = self.any_type()?;
        self.limits.pointer(&to, sign)
    }

    fn is_function_type(&self) -> bool {
        match self.peek() {
            b'F' => true,
            b'D' => matches!(self.peek_at(1), b'o' | b'O' | b'w' | b'x'),
            _ => false,
        }
    }

    fn function_type(&mut self, qualifiers: &[&str]) -> Option<Text> {
        let mut end = String::new();
        for qualifier in qualifiers {
            end.push(' ');
            end.push_str(qualifier);
        }
        if self.take("Do") {
            end.push_str(" noexcept");
        } else if self.take("DO") {
            let condition = self.expression()?;
            self.need("E")?;
            end = self.limits.join(&[&end, " noexcept(", &condition, ")"])?;
        } else if self.take("Dw") {
            let types = self.parameters()?;
            self.need("E")?;
            end = self.limits.join(&[&end, " throw(", &types, ")"])?;
        }
        self.take("Dx");
        self.need("F")?;
        self.take("Y");
        let result = self.any_type()?;
        let parameters = self.parameters()?;
        if self.take("R") {
            end.push_str(" &");
        } else if self.take("O") {
            end.push_str(" &&");
        }
        self.need("E")?;
        let right = self
            .limits
            .join(&["(", &parameters, ")", &end, &result.right])?;
        Some(Text {
            left: result.left,
            right: right.into(),
            shape: Shape::Function,
            ..Text::default()
        })
    }

    fn array_type(&mut self) -> Option<Text> {
        self.need("A")?;
        let size = match self.peek() {
            b'_' => String::new(),
            b'0'..=b'9' => self.number()?.to_string(),
            _ => self.expression()?,
        };
        self.need("_")?;
        let element = self.any_type()?;
        let right = self.limits.join(&["[", &size, "]", &element.right])?;
        Some(Text {
            left: element.left,
            right: right.into(),
            shape: Shape::Array,
            ..Text::default()
        })
    }

    fn member_pointer_type(&mut self) -> Option<Text> {
        self.need("M")?;
        let class = self.type_text()?;
        let member = self.any_type()?;
        let sign = match member.shape {
            Shape::Plain => self.limits.join(&[" ", &class, "::*"])?,
            _ => self.limits.join(&[&class, "::*"])?,
        };
        self.limits.pointer(&member, &sign)
    }

    fn type_of_d(&mut self) -> Option<(Text, bool)> {
        let second = self.peek_at(1);
        if let Some((_, text)) = BUILTIN_D.iter().find(|(letter, _)| *letter == second) {
            self.at += 2;
            return Some((Text::plain(text), false));
        }
        match second {
            b't' | b'T' => Some((Text::plain(&self.decltype()?), true)),
            b'p' => Some((self.pack_expansion()?, true)),
            b'v' => {
                self.at += 2;
                let size = match self.peek() {
                    b'0'..=b'9' => self.number()?.to_string(),
                    _ => {
                        self.take("_");
                        self.expression()?
                    }
                };
                self.need("_")?;
                let element = self.type_text()?;
                let text = self.limits.join(&[&element, " __vector(", &size, ")"])?;
                Some((Text::plain(&text), true))
            }
            b'F' => {
                self.at += 2;
                let bits = self.number()?;
                let text = match self.peek() {
                    b'b' => "std::bfloat16_t".to_owned(),
                    b'x' => format!("_Float{bits}x"),
                    b'_' => format!("_Float{bits}"),
                    _ => return None,
                };
                self.at += 1;
                Some((Text::plain(&text), false))
            }
            b'B' | b'U' => {
                self.at += 2;
                let bits = match self.peek() {
                    b'0'..=b'9' => self.number()?.to_string(),
                    _ => self.expression()?,
                };
                self.need("_")?;
                let sign = if second == b'U' { "unsigned " } else { "" };
                let text = self.limits.join(&[sign, "_BitInt(", &bits, ")"])?;
                Some((Text::plain(&text), false))
            }
            _ => None,
        }
    }

    pub fn decltype(&mut self) -> Option<String> {
        self.at += 2;
        let expression = self.expression()?;
        self.need("E")?;
        self.limits.join(&["decltype (", &expression, ")"])
    }

    /// Reads a pack expansion: a pattern that stands for one type per element of the parameter
    /// packs in the pattern.
    fn pack_expansion(&mut self) -> Option<Text> {
        self.need("Dp")?;
        let texts = self.expand_pack(Self::type_text)?;
        let text = match texts {
            Ok(elements) => self.limits.join_list(&elements)?,
            Err(pattern) => self.limits.join(&[&pattern, "..."])?,
        };
        Some(Text::plain(&text))
    }

    /// Reads the pattern of a pack expansion once for each element of the parameter packs in the
    /// pattern. Returns the text of the pattern for each pack element. If the pattern contains no
    /// parameter pack, returns `Err` with the text of the pattern.
    pub fn expand_pack(
        &mut self,
        read: fn(&mut Self) -> Option<String>,
    ) -> Option<Result<Vec<String>, String>> {
        let outer = (self.pack_index.take(), self.pack_length.take());
        let start = self.at;
        let pattern = self.nest(read)?;
        let (end, known) = (self.at, self.substitutions.len());
        let texts = match self.pack_length {
            None => Err(pattern),
            Some(length) => {
                let mut texts = Vec::new();
                for index in 0..length {
                    (self.at, self.pack_index) = (start, Some(index));
                    texts.push(self.nest(read)?);
                    self.substitutions.truncate(known);
                }
                Ok(texts)
            }
        };
        self.at = end;
        (self.pack_index, self.pack_length) = outer;
        Some(texts)
    }

    /// Reads a template parameter. Returns the text of the template argument to which the parameter
    /// refers.
    pub fn template_parameter(&mut self) -> Option<Text> {
        self.need("T")?;
        if self.take("L") {
            self.sequence_number()?;
        }
        let number = self.sequence_number()?;
        if self.lambdas > 0 {
            return Some(Text::plain(&format!("auto:{}", number + 1)));
        }
        if self.in_conversion {
            return Some(Text::plain(&format!("{MARK}{number}{MARK_END}")));
        }
        match (self.arguments.get(number).cloned(), self.pack_index) {
            (Some(Argument::One(text)), _) => Some(text),
            (Some(Argument::Pack(texts)), Some(index)) => {
                self.limits.spend(texts.len())?;
                self.pack_length = Some(texts.len());
                texts.get(index).cloned()
            }
            (Some(pack), None) => {
                if let Argument::Pack(texts) = &pack {
                    self.limits.spend(texts.len())?;
                    self.pack_length = self.pack_length.max(Some(texts.len()));
                }
                Some(Text::plain(&self.argument_text(&pack)?))
            }
            // A constraint refers to a template parameter before the argument of the parameter is
            // encoded.
            (None, _) => Some(Text::plain(&format!("T{number}"))),
        }
    }

    /// Reads a reference to an earlier part of the name, or an abbreviation. If `is_prefix` is true
    /// and a constructor or destructor follows, the abbreviation of a class is replaced by the full
    /// name of the class.
    pub fn substitution(&mut self, is_prefix: bool) -> Option<Text> {
        self.need("S")?;
        let byte = self.peek();
        if let Some((_, short, long)) = STD.iter().find(|(letter, ..)| *letter == byte) {
            self.at += 1;
            let leaf = long.split('<').next().unwrap_or_default();
            let has_arguments = long.contains('<');
            let is_constructor = is_prefix && matches!(self.peek(), b'C' | b'D');
            return match has_arguments && is_constructor {
                true => Some(Text::name(&["std::", long].concat(), leaf)),
                false => Some(Text::name(short, leaf)),
            };
        }
        let mut index: usize = 0;
        if !self.take("_") {
            while !self.take("_") {
                let digit = char::from(self.peek()).to_digit(36)?;
                if self.peek().is_ascii_lowercase() {
                    return None;
                }
                index = index.checked_mul(36)?.checked_add(digit as usize)?;
                self.at += 1;
            }
            index = index.checked_add(1)?;
        }
        let text = self.substitutions.get(index)?.clone();
        match (text.pack_at, self.pack_index) {
            (Some(at), Some(_)) => {
                // The type refers to a parameter pack: read it again for the current element.
                let (end, known) = (self.at, self.substitutions.len());
                self.at = at;
                let text = self.nest(Self::any_type)?;
                self.substitutions.truncate(known);
                self.at = end;
                Some(text)
            }
            (Some(at), None) => {
                let known = self.substitutions.len();
                let end = std::mem::replace(&mut self.at, at);
                // Read the type again to set `pack_length`. The text of the second read is not
                // used.
                self.nest(Self::any_type)?;
                self.substitutions.truncate(known);
                self.at = end;
                Some(text)
            }
            (None, _) => Some(text),
        }
    }
}
