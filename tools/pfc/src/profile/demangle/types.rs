// SPDX-License-Identifier: GPL-2.0

//! Reads types in mangled C++ names, and references to earlier parts of a name.

use super::cpp::{CppNameParser, PLACEHOLDER_END, PLACEHOLDER_START};
use super::text::{TemplateArgument, TwoPartText, TypeShape};

/// Builtin types that are encoded as one letter.
const ONE_LETTER_TYPES: [(u8, &str); 22] = [
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
const BUILTIN_TYPES_AFTER_D: [(u8, &str); 10] = [
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
const STD_ABBREVIATIONS: [(u8, &str, &str); 6] = [
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

impl CppNameParser<'_> {
    pub fn read_type_text(&mut self) -> Option<String> {
        let text = self.read_type()?;
        self.limits.join_two_parts(&text)
    }

    pub fn read_type(&mut self) -> Option<TwoPartText> {
        let start = self.position;
        let pack_length = self.pack_length.take();
        let (mut text, is_substitutable) =
            self.read_nested_part(Self::read_type_and_substitutability)?;
        if self.pack_length.is_some() && self.pack_index.is_none() {
            text.pack_type_mangled_position = Some(start);
        }
        self.pack_length = self.pack_length.max(pack_length);
        if is_substitutable {
            self.substitutions.push(text.clone());
        }
        Some(text)
    }

    /// Reads a type. Returns the type, and true if later parts of the name may refer to the type by
    /// a substitution such as `S_`.
    fn read_type_and_substitutability(&mut self) -> Option<(TwoPartText, bool)> {
        let byte = self.peek_byte();
        if let Some((_, text)) = ONE_LETTER_TYPES.iter().find(|(letter, _)| *letter == byte) {
            self.position += 1;
            return Some((TwoPartText::plain(text), false));
        }
        let text = match byte {
            b'r' | b'V' | b'K' => {
                let qualifiers = self.read_qualifiers();
                if self.is_function_type_next() {
                    self.read_function_type(&qualifiers)?
                } else {
                    let mut text = self.read_type()?;
                    for qualifier in qualifiers {
                        text = self.limits.qualify_type(&text, qualifier)?;
                    }
                    text
                }
            }
            b'P' => self.read_pointer_type("*")?,
            b'R' => self.read_pointer_type("&")?,
            b'O' => self.read_pointer_type("&&")?,
            b'C' | b'G' => {
                let qualifier = match byte {
                    b'C' => "_Complex",
                    _ => "_Imaginary",
                };
                self.position += 1;
                let text = self.read_type()?;
                self.limits.qualify_type(&text, qualifier)?
            }
            _ if self.is_function_type_next() => self.read_function_type(&[])?,
            b'A' => self.read_array_type()?,
            b'M' => self.read_member_pointer_type()?,
            b'D' => return self.read_type_after_d(),
            b'T' if matches!(self.peek_byte_at(1), b's' | b'u' | b'e') => {
                self.position += 2;
                self.read_name(false)?.text
            }
            b'T' => {
                let text = self.read_template_parameter()?;
                if self.peek_byte() == b'I' && !self.in_conversion_type {
                    self.substitutions.push(text.clone());
                    self.append_template_arguments(&text, false)?
                } else {
                    text
                }
            }
            b'S' if self.peek_byte_at(1) != b't' => {
                let text = self.read_substitution(false)?;
                if self.peek_byte() != b'I' {
                    return Some((text, false));
                }
                self.append_template_arguments(&text, false)?
            }
            b'u' => {
                self.position += 1;
                let text = TwoPartText::plain(&self.read_source_name()?);
                match self.peek_byte() {
                    b'I' => self.append_template_arguments(&text, false)?,
                    _ => text,
                }
            }
            b'U' if !matches!(self.peek_byte_at(1), b'l' | b't') => {
                self.position += 1;
                let mut qualifier = TwoPartText::plain(&self.read_source_name()?);
                if self.peek_byte() == b'I' {
                    qualifier = self.append_template_arguments(&qualifier, false)?;
                }
                let text = self.read_type()?;
                self.limits.qualify_type(&text, &qualifier.left)?
            }
            _ => self.read_name(false)?.text,
        };
        Some((text, true))
    }

    /// Reads type qualifiers. Returns the qualifiers in the order of C++ text, which is the reverse
    /// of the order in the encoding.
    pub fn read_qualifiers(&mut self) -> Vec<&'static str> {
        let read =
            |(letter, text): &(&str, &'static str)| self.skip_prefix(letter).then_some(*text);
        let mut all: Vec<&str> = [("r", "restrict"), ("V", "volatile"), ("K", "const")]
            .iter()
            .filter_map(read)
            .collect();
        all.reverse();
        all
    }

    fn read_pointer_type(&mut self, sign: &str) -> Option<TwoPartText> {
        self.position += 1;
        let to = self.read_type()?;
        self.limits.pointer_type(&to, sign)
    }

    fn is_function_type_next(&self) -> bool {
        match self.peek_byte() {
            b'F' => true,
            b'D' => matches!(self.peek_byte_at(1), b'o' | b'O' | b'w' | b'x'),
            _ => false,
        }
    }

    fn read_function_type(&mut self, qualifiers: &[&str]) -> Option<TwoPartText> {
        let mut end = String::new();
        for qualifier in qualifiers {
            end.push(' ');
            end.push_str(qualifier);
        }
        if self.skip_prefix("Do") {
            end.push_str(" noexcept");
        } else if self.skip_prefix("DO") {
            let condition = self.read_expression()?;
            self.expect_text("E")?;
            end = self.limits.join(&[&end, " noexcept(", &condition, ")"])?;
        } else if self.skip_prefix("Dw") {
            let types = self.read_parameter_types()?;
            self.expect_text("E")?;
            end = self.limits.join(&[&end, " throw(", &types, ")"])?;
        }
        self.skip_prefix("Dx");
        self.expect_text("F")?;
        self.skip_prefix("Y");
        let result = self.read_type()?;
        let parameters = self.read_parameter_types()?;
        if self.skip_prefix("R") {
            end.push_str(" &");
        } else if self.skip_prefix("O") {
            end.push_str(" &&");
        }
        self.expect_text("E")?;
        let right = self
            .limits
            .join(&["(", &parameters, ")", &end, &result.right])?;
        Some(TwoPartText {
            left: result.left,
            right: right.into(),
            shape: TypeShape::Function,
            ..TwoPartText::default()
        })
    }

    fn read_array_type(&mut self) -> Option<TwoPartText> {
        self.expect_text("A")?;
        let size = match self.peek_byte() {
            b'_' => String::new(),
            b'0'..=b'9' => self.read_number()?.to_string(),
            _ => self.read_expression()?,
        };
        self.expect_text("_")?;
        let element = self.read_type()?;
        let right = self.limits.join(&["[", &size, "]", &element.right])?;
        Some(TwoPartText {
            left: element.left,
            right: right.into(),
            shape: TypeShape::Array,
            ..TwoPartText::default()
        })
    }

    fn read_member_pointer_type(&mut self) -> Option<TwoPartText> {
        self.expect_text("M")?;
        let class = self.read_type_text()?;
        let member = self.read_type()?;
        let sign = match member.shape {
            TypeShape::Plain => self.limits.join(&[" ", &class, "::*"])?,
            _ => self.limits.join(&[&class, "::*"])?,
        };
        self.limits.pointer_type(&member, &sign)
    }

    fn read_type_after_d(&mut self) -> Option<(TwoPartText, bool)> {
        let second = self.peek_byte_at(1);
        if let Some((_, text)) = BUILTIN_TYPES_AFTER_D
            .iter()
            .find(|(letter, _)| *letter == second)
        {
            self.position += 2;
            return Some((TwoPartText::plain(text), false));
        }
        match second {
            b't' | b'T' => Some((TwoPartText::plain(&self.read_decltype()?), true)),
            b'p' => Some((self.read_pack_expansion()?, true)),
            b'v' => {
                self.position += 2;
                let size = match self.peek_byte() {
                    b'0'..=b'9' => self.read_number()?.to_string(),
                    _ => {
                        self.skip_prefix("_");
                        self.read_expression()?
                    }
                };
                self.expect_text("_")?;
                let element = self.read_type_text()?;
                let text = self.limits.join(&[&element, " __vector(", &size, ")"])?;
                Some((TwoPartText::plain(&text), true))
            }
            b'F' => {
                self.position += 2;
                let bits = self.read_number()?;
                let text = match self.peek_byte() {
                    b'b' => "std::bfloat16_t".to_owned(),
                    b'x' => format!("_Float{bits}x"),
                    b'_' => format!("_Float{bits}"),
                    _ => return None,
                };
                self.position += 1;
                Some((TwoPartText::plain(&text), false))
            }
            b'B' | b'U' => {
                self.position += 2;
                let bits = match self.peek_byte() {
                    b'0'..=b'9' => self.read_number()?.to_string(),
                    _ => self.read_expression()?,
                };
                self.expect_text("_")?;
                let sign = if second == b'U' { "unsigned " } else { "" };
                let text = self.limits.join(&[sign, "_BitInt(", &bits, ")"])?;
                Some((TwoPartText::plain(&text), false))
            }
            _ => None,
        }
    }

    pub fn read_decltype(&mut self) -> Option<String> {
        self.position += 2;
        let expression = self.read_expression()?;
        self.expect_text("E")?;
        self.limits.join(&["decltype (", &expression, ")"])
    }

    /// Reads a pack expansion: a pattern that stands for one type per element of the parameter
    /// packs in the pattern.
    fn read_pack_expansion(&mut self) -> Option<TwoPartText> {
        self.expect_text("Dp")?;
        let texts = self.expand_pack(Self::read_type_text)?;
        let text = match texts {
            Ok(elements) => self.limits.join_with_commas(&elements)?,
            Err(pattern) => self.limits.join(&[&pattern, "..."])?,
        };
        Some(TwoPartText::plain(&text))
    }

    /// Reads the pattern of a pack expansion once for each element of the parameter packs in the
    /// pattern. Returns the text of the pattern for each pack element. If the pattern contains no
    /// parameter pack, returns `Err` with the text of the pattern.
    pub fn expand_pack(
        &mut self,
        read: fn(&mut Self) -> Option<String>,
    ) -> Option<Result<Vec<String>, String>> {
        let outer = (self.pack_index.take(), self.pack_length.take());
        let start = self.position;
        let pattern = self.read_nested_part(read)?;
        let (end, known) = (self.position, self.substitutions.len());
        let texts = match self.pack_length {
            None => Err(pattern),
            Some(length) => {
                let mut texts = Vec::new();
                for index in 0..length {
                    (self.position, self.pack_index) = (start, Some(index));
                    texts.push(self.read_nested_part(read)?);
                    self.substitutions.truncate(known);
                }
                Ok(texts)
            }
        };
        self.position = end;
        (self.pack_index, self.pack_length) = outer;
        Some(texts)
    }

    /// Reads a template parameter. Returns the text of the template argument to which the parameter
    /// refers.
    pub fn read_template_parameter(&mut self) -> Option<TwoPartText> {
        self.expect_text("T")?;
        if self.skip_prefix("L") {
            self.read_index_before_underscore()?;
        }
        let number = self.read_index_before_underscore()?;
        if self.lambda_depth > 0 {
            return Some(TwoPartText::plain(&format!("auto:{}", number + 1)));
        }
        if self.in_conversion_type {
            return Some(TwoPartText::plain(&format!(
                "{PLACEHOLDER_START}{number}{PLACEHOLDER_END}"
            )));
        }
        match (self.arguments.get(number).cloned(), self.pack_index) {
            (Some(TemplateArgument::One(text)), _) => Some(text),
            (Some(TemplateArgument::Pack(texts)), Some(index)) => {
                self.limits.spend_work(texts.len())?;
                self.pack_length = Some(texts.len());
                texts.get(index).cloned()
            }
            (Some(pack), None) => {
                if let TemplateArgument::Pack(texts) = &pack {
                    self.limits.spend_work(texts.len())?;
                    self.pack_length = self.pack_length.max(Some(texts.len()));
                }
                Some(TwoPartText::plain(&self.format_argument(&pack)?))
            }
            // A constraint refers to a template parameter before the argument of the parameter is
            // encoded.
            (None, _) => Some(TwoPartText::plain(&format!("T{number}"))),
        }
    }

    /// Reads a reference to an earlier part of the name, or an abbreviation. If `is_prefix` is true
    /// and a constructor or destructor follows, the abbreviation of a class is replaced by the full
    /// name of the class.
    pub fn read_substitution(&mut self, is_prefix: bool) -> Option<TwoPartText> {
        self.expect_text("S")?;
        let byte = self.peek_byte();
        if let Some((_, short, long)) = STD_ABBREVIATIONS
            .iter()
            .find(|(letter, ..)| *letter == byte)
        {
            self.position += 1;
            let leaf = long.split('<').next().unwrap_or_default();
            let has_arguments = long.contains('<');
            let is_constructor = is_prefix && matches!(self.peek_byte(), b'C' | b'D');
            return match has_arguments && is_constructor {
                true => Some(TwoPartText::from_name(&["std::", long].concat(), leaf)),
                false => Some(TwoPartText::from_name(short, leaf)),
            };
        }
        let mut index: usize = 0;
        if !self.skip_prefix("_") {
            while !self.skip_prefix("_") {
                let digit = char::from(self.peek_byte()).to_digit(36)?;
                if self.peek_byte().is_ascii_lowercase() {
                    return None;
                }
                index = index.checked_mul(36)?.checked_add(digit as usize)?;
                self.position += 1;
            }
            index = index.checked_add(1)?;
        }
        let text = self.substitutions.get(index)?.clone();
        match (text.pack_type_mangled_position, self.pack_index) {
            (Some(at), Some(_)) => {
                // The type refers to a parameter pack: read it again for the current element.
                let (end, known) = (self.position, self.substitutions.len());
                self.position = at;
                let text = self.read_nested_part(Self::read_type)?;
                self.substitutions.truncate(known);
                self.position = end;
                Some(text)
            }
            (Some(at), None) => {
                let known = self.substitutions.len();
                let end = std::mem::replace(&mut self.position, at);
                // Read the type again to set `pack_length`. The text of the second read is not
                // used.
                self.read_nested_part(Self::read_type)?;
                self.substitutions.truncate(known);
                self.position = end;
                Some(text)
            }
            (None, _) => Some(text),
        }
    }
}
