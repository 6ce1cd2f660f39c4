// SPDX-License-Identifier: GPL-2.0

//! Demangles names of C++ functions, which are encoded as in the Itanium C++ ABI
//! (<https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling>).
//!
//! The parser reads a name from left to right, and never backtracks to parse a part in another way.
//! Only parts that refer to a parameter pack are read more than once: to find the number of pack
//! elements, and for each element. Like perf, pfc does not show the parameters, the return type and
//! the constraints of the function itself.

use super::text::{DemanglingLimits, TemplateArgument, TwoPartText};

/// The first character of a placeholder for a template argument that has not been read yet. A
/// placeholder consists of `PLACEHOLDER_START`, the argument's number, and [`PLACEHOLDER_END`].
pub const PLACEHOLDER_START: char = '\u{1}';
pub const PLACEHOLDER_END: char = '\u{2}';

/// Returns the name of a C++ function, without parameters.
pub fn demangle_cpp(name: &str) -> Option<String> {
    let mut parser = CppNameParser::new(name)?;
    parser.read_encoding(false)
}

/// The name of a function or a type, and its properties.
pub struct ParsedName {
    pub text: TwoPartText,
    /// True if the encoding has the return type before the parameters. This is the case if the name
    /// ends with template arguments and does not name a constructor, destructor or conversion
    /// operator.
    has_return_type: bool,
    /// Qualifiers of a member function, such as `const`, each with a blank before it.
    qualifiers: String,
}

/// The part of a qualified name after the last `::`.
struct NameComponent {
    text: String,
    text_without_abi_tags: String,
    /// True for a constructor, destructor or conversion operator, whose encoding has no return
    /// type.
    is_special_member: bool,
}

pub struct CppNameParser<'a> {
    input: &'a [u8],
    pub position: usize,
    pub limits: DemanglingLimits,
    /// The parts of the name to which later parts may refer by `S_`, `S0_` and so on.
    pub substitutions: Vec<TwoPartText>,
    /// The template arguments of the innermost function template.
    pub arguments: Vec<TemplateArgument>,
    /// The number of lambda expressions whose parameters are being read.
    pub lambda_depth: usize,
    /// True while the type of a conversion operator is being read. The template arguments of a
    /// conversion operator are encoded after its type.
    pub in_conversion_type: bool,
    /// The pattern of a pack expansion is read once for each element of its parameter packs.
    /// `pack_index` is the index of the element for which a pattern is being read, or `None`.
    pub pack_index: Option<usize>,
    /// The number of elements of the parameter packs in the pattern that is being read.
    pub pack_length: Option<usize>,
}

impl<'a> CppNameParser<'a> {
    pub fn new(name: &'a str) -> Option<Self> {
        let input = name
            .strip_prefix("_Z")
            .or_else(|| name.strip_prefix("__Z"))?;
        Some(Self {
            input: input.as_bytes(),
            position: 0,
            limits: DemanglingLimits::default(),
            substitutions: Vec::new(),
            arguments: Vec::new(),
            lambda_depth: 0,
            in_conversion_type: false,
            pack_index: None,
            pack_length: None,
        })
    }

    /// Returns the next byte of the mangled name, or 0 at the end of the name.
    pub fn peek_byte(&self) -> u8 {
        self.peek_byte_at(0)
    }

    pub fn peek_byte_at(&self, offset: usize) -> u8 {
        let at = self.position.checked_add(offset);
        at.and_then(|at| self.input.get(at)).copied().unwrap_or(0)
    }

    /// If the rest of the mangled name begins with `text`, skips `text` and returns true.
    pub fn skip_prefix(&mut self, text: &str) -> bool {
        let rest = self.input.get(self.position..).unwrap_or_default();
        let is_next = rest.starts_with(text.as_bytes());
        if is_next {
            self.position += text.len();
        }
        is_next
    }

    pub fn expect_text(&mut self, text: &str) -> Option<()> {
        self.skip_prefix(text).then_some(())
    }

    /// Calls `read` for a nested part of the name. Returns `None` if the nesting is too deep.
    pub fn read_nested_part<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.limits.enter_nested_part()?;
        let result = read(self);
        self.limits.leave_nested_part();
        result
    }

    /// Reads a decimal number.
    pub fn read_number(&mut self) -> Option<usize> {
        let digits = &self.input[self.position.min(self.input.len())..];
        let length = digits.iter().take_while(|b| b.is_ascii_digit()).count();
        let text = std::str::from_utf8(&digits[..length]).ok()?;
        self.position += length;
        text.parse().ok()
    }

    /// Reads an optional decimal number, and then `_`. Returns 0 if the number is missing,
    /// otherwise the number plus 1.
    pub fn read_index_before_underscore(&mut self) -> Option<usize> {
        let number = match self.peek_byte().is_ascii_digit() {
            true => self.read_number()?.checked_add(1)?,
            false => 0,
        };
        self.expect_text("_")?;
        Some(number)
    }

    /// Reads the name of a function and, if `with_parameters` is true, its parameters.
    pub fn read_encoding(&mut self, with_parameters: bool) -> Option<String> {
        self.limits.spend_work(self.arguments.len())?;
        let outer = self.arguments.clone();
        let text = self.read_nested_part(|p| p.read_special_name_or_function(with_parameters));
        self.arguments = outer;
        text
    }

    fn read_special_name_or_function(&mut self, with_parameters: bool) -> Option<String> {
        if matches!(self.peek_byte(), b'T' | b'G') {
            return self.read_special_name();
        }
        let name = self.read_name(true)?;
        let text = self.limits.join_two_parts(&name.text)?;
        if !with_parameters || matches!(self.peek_byte(), 0 | b'E' | b'.') {
            return Some(text);
        }
        if name.has_return_type {
            self.read_type_text()?;
        }
        let parameters = self.read_parameter_types()?;
        self.skip_constraint()?;
        self.limits
            .join(&[&text, "(", &parameters, ")", &name.qualifiers])
    }

    /// Reads parameter types until the next byte cannot begin a type. Returns the types with commas
    /// between them.
    pub fn read_parameter_types(&mut self) -> Option<String> {
        let mut texts = Vec::new();
        // R or O directly before E is a reference qualifier of the function type, not a type.
        let is_end = |p: &Self| match p.peek_byte() {
            0 | b'E' | b'.' | b'Q' => true,
            b'R' | b'O' => p.peek_byte_at(1) == b'E',
            _ => false,
        };
        while !is_end(self) {
            let text = self.read_type()?;
            texts.push(self.limits.join_two_parts(&text)?);
        }
        match texts.as_slice() {
            [only] if only == "void" => Some(String::new()),
            [] => None,
            _ => self.limits.join_with_commas(&texts),
        }
    }

    fn read_special_name(&mut self) -> Option<String> {
        const SPECIAL_NAMES_OF_TYPES: [(&str, &str); 5] = [
            ("TV", "vtable for "),
            ("TT", "VTT for "),
            ("TI", "typeinfo for "),
            ("TS", "typeinfo name for "),
            ("TA", "template parameter object for "),
        ];
        const SPECIAL_NAMES_OF_OBJECTS: [(&str, &str); 4] = [
            ("GV", "guard variable for "),
            ("GR", "reference temporary for "),
            ("TW", "TLS wrapper function for "),
            ("TH", "TLS init function for "),
        ];
        const SPECIAL_NAMES_OF_FUNCTIONS: [(&str, &str); 2] = [
            ("GTt", "transaction clone for "),
            ("GTn", "non-transaction clone for "),
        ];
        if let Some((_, what)) = SPECIAL_NAMES_OF_TYPES
            .iter()
            .find(|(begin, _)| self.skip_prefix(begin))
        {
            let text = self.read_type_text()?;
            return self.limits.join(&[what, &text]);
        }
        if let Some((_, what)) = SPECIAL_NAMES_OF_OBJECTS
            .iter()
            .find(|(begin, _)| self.skip_prefix(begin))
        {
            let name = self.read_name(false)?.text;
            return self.limits.join(&[what, &name.left, &name.right]);
        }
        if let Some((_, what)) = SPECIAL_NAMES_OF_FUNCTIONS
            .iter()
            .find(|(begin, _)| self.skip_prefix(begin))
        {
            let text = self.read_encoding(true)?;
            return self.limits.join(&[what, &text]);
        }
        let what = if self.skip_prefix("TC") {
            let derived = self.read_type_text()?;
            self.read_number()?;
            self.expect_text("_")?;
            let base = self.read_type_text()?;
            let parts = ["construction vtable for ", &base, "-in-", &derived];
            return self.limits.join(&parts);
        } else if self.skip_prefix("Tc") {
            self.read_call_offset()?;
            self.read_call_offset()?;
            "covariant return thunk to "
        } else {
            self.expect_text("T")?;
            match self.read_call_offset()? {
                true => "virtual thunk to ",
                false => "non-virtual thunk to ",
            }
        };
        let text = self.read_encoding(true)?;
        self.limits.join(&[what, &text])
    }

    /// Reads the call offset of a thunk. Returns true if the thunk is a virtual thunk.
    fn read_call_offset(&mut self) -> Option<bool> {
        let is_virtual = self.skip_prefix("v");
        if !is_virtual {
            self.expect_text("h")?;
        }
        for _ in 0..=usize::from(is_virtual) {
            self.skip_prefix("n");
            self.read_number()?;
            self.expect_text("_")?;
        }
        Some(is_virtual)
    }

    /// Reads a name. If `of_function` is true, the template arguments of this name are kept,
    /// because the function's parameters may refer to them.
    pub fn read_name(&mut self, of_function: bool) -> Option<ParsedName> {
        self.read_nested_part(|p| p.read_name_of_any_form(of_function))
    }

    fn read_name_of_any_form(&mut self, of_function: bool) -> Option<ParsedName> {
        let mut name = match (self.peek_byte(), self.peek_byte_at(1)) {
            (b'N', _) => return self.read_nested_name(of_function),
            (b'Z', _) => return self.read_local_name(of_function),
            (b'S', second) if second != b't' => {
                let text = self.read_substitution(false)?;
                // Without template arguments, a substitution stands for a whole type and cannot be
                // a name.
                if self.peek_byte() != b'I' {
                    return None;
                }
                ParsedName {
                    text,
                    has_return_type: false,
                    qualifiers: String::new(),
                }
            }
            _ => {
                let std = if self.skip_prefix("St") { "std::" } else { "" };
                let component = self.read_name_component("")?;
                let text = self.limits.join(&[std, &component.text])?;
                let text = TwoPartText::from_name(&text, &component.text_without_abi_tags);
                if self.peek_byte() == b'I' {
                    self.substitutions.push(text.clone());
                }
                ParsedName {
                    text,
                    has_return_type: false,
                    qualifiers: String::new(),
                }
            }
        };
        if self.peek_byte() == b'I' {
            name.text = self.append_template_arguments(&name.text, of_function)?;
            name.has_return_type = true;
        }
        Some(name)
    }

    fn read_nested_name(&mut self, of_function: bool) -> Option<ParsedName> {
        self.expect_text("N")?;
        let mut qualifiers = String::new();
        let mut is_special_member = false;
        if !self.skip_prefix("H") {
            for qualifier in self.read_qualifiers() {
                qualifiers.push(' ');
                qualifiers.push_str(qualifier);
            }
            let reference = [("R", " &"), ("O", " &&")];
            if let Some((_, text)) = reference.iter().find(|(sign, _)| self.skip_prefix(sign)) {
                qualifiers.push_str(text);
            }
        }
        let mut current: Option<TwoPartText> = None;
        let mut has_arguments = false;
        while !self.skip_prefix("E") {
            self.limits.enter_nested_part()?;
            self.limits.leave_nested_part();
            let is_first = current.is_none();
            let (next, is_substitutable) = match (&current, self.peek_byte()) {
                (Some(prefix), b'I') => {
                    has_arguments = true;
                    let prefix = prefix.clone();
                    (self.append_template_arguments(&prefix, of_function)?, true)
                }
                (None, b'S') if self.skip_prefix("St") => {
                    (TwoPartText::from_name("std", "std"), false)
                }
                (None, b'S') => (self.read_substitution(true)?, false),
                (None, b'T') => (self.read_template_parameter()?, true),
                (None, b'D') if matches!(self.peek_byte_at(1), b't' | b'T') => {
                    (TwoPartText::plain(&self.read_decltype()?), true)
                }
                // The letter M follows the name of a data member. The next component is in the
                // initializer of this data member.
                (Some(prefix), b'M') => {
                    self.position += 1;
                    (prefix.clone(), false)
                }
                _ => {
                    let prefix = current.take().unwrap_or_default();
                    let component = self.read_name_component(&prefix.last_component)?;
                    (is_special_member, has_arguments) = (component.is_special_member, false);
                    let sign = if is_first { "" } else { "::" };
                    let prefix = self.limits.join_two_parts(&prefix)?;
                    let text = self.limits.join(&[&prefix, sign, &component.text])?;
                    (
                        TwoPartText::from_name(&text, &component.text_without_abi_tags),
                        true,
                    )
                }
            };
            if is_substitutable && self.peek_byte() != b'E' {
                self.substitutions.push(next.clone());
            }
            current = Some(next);
        }
        Some(ParsedName {
            text: current?,
            has_return_type: has_arguments && !is_special_member,
            qualifiers,
        })
    }

    fn read_local_name(&mut self, of_function: bool) -> Option<ParsedName> {
        self.expect_text("Z")?;
        let function = self.read_encoding(true)?;
        self.expect_text("E")?;
        let mut name = ParsedName {
            text: TwoPartText::plain("string literal"),
            has_return_type: false,
            qualifiers: String::new(),
        };
        let mut default_argument = String::new();
        if self.skip_prefix("s") {
            self.skip_discriminator();
        } else {
            if self.skip_prefix("d") {
                let number = self.read_index_before_underscore()?.saturating_add(1);
                default_argument = format!("{{default arg#{number}}}::");
            }
            name = self.read_name(of_function)?;
            self.skip_discriminator();
        }
        let parts = [&function, "::", &default_argument, &name.text.left];
        name.text.left = self.limits.join(&parts)?.into();
        Some(name)
    }

    /// Skips the discriminator, which distinguishes local entities with the same name, if one is
    /// next.
    fn skip_discriminator(&mut self) {
        let before = self.position;
        let is_whole =
            self.skip_prefix("__") && self.read_number().is_some() && self.skip_prefix("_")
                || self.skip_prefix("_") && self.peek_byte().is_ascii_digit() && {
                    self.position += 1;
                    true
                };
        if !is_whole {
            self.position = before;
        }
    }

    /// Reads one component of a qualified name. `enclosing` is the name of the enclosing class,
    /// from which constructors and destructors take their names.
    fn read_name_component(&mut self, enclosing: &str) -> Option<NameComponent> {
        // The letter L precedes a name with internal linkage. F precedes the name of a friend.
        self.skip_prefix("L");
        let mut component = match (self.peek_byte(), self.peek_byte_at(1)) {
            (b'0'..=b'9', _) => {
                let name = self.read_source_name()?;
                NameComponent {
                    text_without_abi_tags: name.clone(),
                    text: name,
                    is_special_member: false,
                }
            }
            (b'U', b'l') => self.read_lambda()?,
            (b'U', b't') => {
                self.position += 2;
                let number = self.read_index_before_underscore()?.saturating_add(1);
                let text = format!("{{unnamed type#{number}}}");
                NameComponent {
                    text_without_abi_tags: text.clone(),
                    text,
                    is_special_member: false,
                }
            }
            (b'C', b'1'..=b'5') => {
                self.position += 2;
                NameComponent::special_member(enclosing)
            }
            (b'C', b'I') => {
                self.position += 3;
                self.read_type()?;
                NameComponent::special_member(enclosing)
            }
            (b'D', b'0'..=b'5') => {
                self.position += 2;
                NameComponent::special_member(&self.limits.join(&["~", enclosing])?)
            }
            (b'D', b'C') => {
                self.position += 2;
                let mut names = Vec::new();
                while !self.skip_prefix("E") {
                    names.push(self.read_source_name()?);
                }
                let names = self.limits.join_with_commas(&names)?;
                let text = self.limits.join(&["[", &names, "]"])?;
                NameComponent {
                    text_without_abi_tags: text.clone(),
                    text,
                    is_special_member: false,
                }
            }
            (b'F', _) => {
                self.position += 1;
                return self.read_nested_part(|p| p.read_name_component(enclosing));
            }
            _ => self.read_operator_name()?,
        };
        while self.skip_prefix("B") {
            let tag = self.read_source_name()?;
            component.text = self.limits.join(&[&component.text, "[abi:", &tag, "]"])?;
        }
        (!component.text.is_empty()).then_some(component)
    }

    pub fn read_source_name(&mut self) -> Option<String> {
        let length = self.read_number().filter(|n| *n > 0)?;
        let bytes = self
            .input
            .get(self.position..self.position.checked_add(length)?)?;
        self.position += length;
        let is_anonymous = bytes.len() >= 10
            && bytes.starts_with(b"_GLOBAL_")
            && matches!(bytes[8], b'.' | b'_' | b'$')
            && bytes[9] == b'N';
        match is_anonymous {
            true => Some("(anonymous namespace)".to_owned()),
            false => self.limits.join(&[&visible::escape_invalid_utf8(bytes)]),
        }
    }

    fn read_lambda(&mut self) -> Option<NameComponent> {
        self.expect_text("Ul")?;
        self.lambda_depth += 1;
        while self.skip_template_parameter_declaration()? {}
        let parameters = self.read_parameter_types()?;
        self.skip_constraint()?;
        self.lambda_depth -= 1;
        self.expect_text("E")?;
        let number = self
            .read_index_before_underscore()?
            .saturating_add(1)
            .to_string();
        let parts = ["{lambda(", &parameters, ")#", &number, "}"];
        let text = self.limits.join(&parts)?;
        Some(NameComponent {
            text_without_abi_tags: text.clone(),
            text,
            is_special_member: false,
        })
    }

    /// Reads the name of an operator function, such as `operator+`.
    fn read_operator_name(&mut self) -> Option<NameComponent> {
        if self.skip_prefix("cv") {
            let outer = std::mem::replace(&mut self.in_conversion_type, true);
            let mut to = self.read_type_text()?;
            self.in_conversion_type = outer;
            if self.peek_byte() != b'I' && to.contains(PLACEHOLDER_START) {
                to = self.fill_placeholders(&to, &self.arguments.clone())?;
            }
            return Some(NameComponent::special_member(
                &self.limits.join(&["operator ", &to])?,
            ));
        }
        let text = if self.skip_prefix("li") {
            let name = self.read_source_name()?;
            self.limits.join(&["operator\"\" ", &name])?
        } else if self.peek_byte() == b'v' && self.peek_byte_at(1).is_ascii_digit() {
            self.position += 2;
            let name = self.read_source_name()?;
            self.limits.join(&["operator ", &name])?
        } else {
            let operator = self.read_operator()?;
            let is_word = operator.starts_with(|c: char| c.is_ascii_lowercase());
            let blank = if is_word { " " } else { "" };
            ["operator", blank, operator].concat()
        };
        Some(NameComponent {
            text_without_abi_tags: text.clone(),
            text,
            is_special_member: false,
        })
    }
}

impl NameComponent {
    fn special_member(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            text_without_abi_tags: text.to_owned(),
            is_special_member: true,
        }
    }
}
