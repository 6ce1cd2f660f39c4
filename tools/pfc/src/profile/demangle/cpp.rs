// SPDX-License-Identifier: GPL-2.0

//! Demangles names of C++ functions, which are encoded as in the Itanium C++ ABI
//! (<https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling>).
//!
//! The parser reads a name from left to right, and never backtracks to parse a part in another way.
//! Only parts that refer to a parameter pack are read more than once: to find the number of pack
//! elements, and for each element. Like perf, pfc does not show the parameters, the return type and
//! the constraints of the function itself.

use super::text::{Argument, Limits, Text};

/// The first character of a placeholder for a template argument that has not been read yet. A
/// placeholder consists of `MARK`, the argument's number, and [`MARK_END`].
pub const MARK: char = '\u{1}';
pub const MARK_END: char = '\u{2}';

/// Returns the name of a C++ function, without parameters.
pub fn demangle(name: &str) -> Option<String> {
    let mut parser = Parser::new(name)?;
    parser.encoding(false)
}

/// The name of a function or a type, and its properties.
pub struct Name {
    pub text: Text,
    /// True if the encoding has the return type before the parameters: the name ends with template
    /// arguments, and is not that of a constructor, destructor or conversion operator.
    has_return_type: bool,
    /// Qualifiers of a member function, such as `const`, each with a blank before it.
    qualifiers: String,
}

/// The part of a qualified name after the last `::`.
struct Component {
    text: String,
    leaf: String,
    /// True for a constructor, destructor or conversion operator, whose encoding has no return
    /// type.
    is_special: bool,
}

pub struct Parser<'a> {
    input: &'a [u8],
    pub at: usize,
    pub limits: Limits,
    /// The parts of the name to which later parts may refer by `S_`, `S0_` and so on.
    pub substitutions: Vec<Text>,
    /// The template arguments of the innermost function template.
    pub arguments: Vec<Argument>,
    /// The number of lambda expressions whose parameters are being read.
    pub lambdas: usize,
    /// True while the type of a conversion operator is being read. The template arguments of a
    /// conversion operator are encoded after its type.
    pub in_conversion: bool,
    /// The pattern of a pack expansion is read once for each element of its parameter packs.
    /// `pack_index` is the index of the element for which a pattern is being read, or `None`.
    pub pack_index: Option<usize>,
    /// The number of elements of the parameter packs in the pattern that is being read.
    pub pack_length: Option<usize>,
}

impl<'a> Parser<'a> {
    pub fn new(name: &'a str) -> Option<Self> {
        let input = name
            .strip_prefix("_Z")
            .or_else(|| name.strip_prefix("__Z"))?;
        Some(Self {
            input: input.as_bytes(),
            at: 0,
            limits: Limits::default(),
            substitutions: Vec::new(),
            arguments: Vec::new(),
            lambdas: 0,
            in_conversion: false,
            pack_index: None,
            pack_length: None,
        })
    }

    /// Returns the next byte of the mangled name, or 0 at the end of the name.
    pub fn peek(&self) -> u8 {
        self.peek_at(0)
    }

    pub fn peek_at(&self, offset: usize) -> u8 {
        let at = self.at.checked_add(offset);
        at.and_then(|at| self.input.get(at)).copied().unwrap_or(0)
    }

    /// Skips `text` and returns true if the rest of the mangled name begins with it.
    pub fn take(&mut self, text: &str) -> bool {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let is_next = rest.starts_with(text.as_bytes());
        if is_next {
            self.at += text.len();
        }
        is_next
    }

    pub fn need(&mut self, text: &str) -> Option<()> {
        self.take(text).then_some(())
    }

    /// Calls `read` for a nested part of the name. Returns `None` if the nesting is too deep.
    pub fn nest<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.limits.enter()?;
        let result = read(self);
        self.limits.leave();
        result
    }

    /// Reads a decimal number.
    pub fn number(&mut self) -> Option<usize> {
        let digits = &self.input[self.at.min(self.input.len())..];
        let length = digits.iter().take_while(|b| b.is_ascii_digit()).count();
        let text = std::str::from_utf8(&digits[..length]).ok()?;
        self.at += length;
        text.parse().ok()
    }

    /// Reads an optional decimal number, and then `_`. Returns 0 if the number is missing,
    /// otherwise the number plus 1.
    pub fn sequence_number(&mut self) -> Option<usize> {
        let number = match self.peek().is_ascii_digit() {
            true => self.number()?.checked_add(1)?,
            false => 0,
        };
        self.need("_")?;
        Some(number)
    }

    /// Reads the name of a function and, if `with_parameters` is true, its parameters.
    pub fn encoding(&mut self, with_parameters: bool) -> Option<String> {
        self.limits.spend(self.arguments.len())?;
        let outer = self.arguments.clone();
        let text = self.nest(|p| p.encoding_text(with_parameters));
        self.arguments = outer;
        text
    }

    fn encoding_text(&mut self, with_parameters: bool) -> Option<String> {
        if matches!(self.peek(), b'T' | b'G') {
            return self.special_name();
        }
        let name = self.name(true)?;
        let text = self.limits.whole(&name.text)?;
        if !with_parameters || matches!(self.peek(), 0 | b'E' | b'.') {
            return Some(text);
        }
        if name.has_return_type {
            self.type_text()?;
        }
        let parameters = self.parameters()?;
        self.skip_constraint()?;
        self.limits
            .join(&[&text, "(", &parameters, ")", &name.qualifiers])
    }

    /// Reads parameter types until the next byte cannot begin a type. Returns the types with commas
    /// between them.
    pub fn parameters(&mut self) -> Option<String> {
        let mut texts = Vec::new();
        // R or O directly before E is a reference qualifier of the function type, not a type.
        let is_end = |p: &Self| match p.peek() {
            0 | b'E' | b'.' | b'Q' => true,
            b'R' | b'O' => p.peek_at(1) == b'E',
            _ => false,
        };
        while !is_end(self) {
            let text = self.any_type()?;
            texts.push(self.limits.whole(&text)?);
        }
        match texts.as_slice() {
            [only] if only == "void" => Some(String::new()),
            [] => None,
            _ => self.limits.join_list(&texts),
        }
    }

    fn special_name(&mut self) -> Option<String> {
        const OF_TYPES: [(&str, &str); 5] = [
            ("TV", "vtable for "),
            ("TT", "VTT for "),
            ("TI", "typeinfo for "),
            ("TS", "typeinfo name for "),
            ("TA", "template parameter object for "),
        ];
        const OF_NAMES: [(&str, &str); 4] = [
            ("GV", "guard variable for "),
            ("GR", "reference temporary for "),
            ("TW", "TLS wrapper function for "),
            ("TH", "TLS init function for "),
        ];
        const OF_FUNCTIONS: [(&str, &str); 2] = [
            ("GTt", "transaction clone for "),
            ("GTn", "non-transaction clone for "),
        ];
        if let Some((_, what)) = OF_TYPES.iter().find(|(begin, _)| self.take(begin)) {
            let text = self.type_text()?;
            return self.limits.join(&[what, &text]);
        }
        if let Some((_, what)) = OF_NAMES.iter().find(|(begin, _)| self.take(begin)) {
            let name = self.name(false)?.text;
            return self.limits.join(&[what, &name.left, &name.right]);
        }
        if let Some((_, what)) = OF_FUNCTIONS.iter().find(|(begin, _)| self.take(begin)) {
            let text = self.encoding(true)?;
            return self.limits.join(&[what, &text]);
        }
        let what = if self.take("TC") {
            let derived = self.type_text()?;
            self.number()?;
            self.need("_")?;
            let base = self.type_text()?;
            let parts = ["construction vtable for ", &base, "-in-", &derived];
            return self.limits.join(&parts);
        } else if self.take("Tc") {
            self.call_offset()?;
            self.call_offset()?;
            "covariant return thunk to "
        } else {
            self.need("T")?;
            match self.call_offset()? {
                true => "virtual thunk to ",
                false => "non-virtual thunk to ",
            }
        };
        let text = self.encoding(true)?;
        self.limits.join(&[what, &text])
    }

    /// Reads the call offset of a thunk. Returns true if the thunk is a virtual thunk.
    fn call_offset(&mut self) -> Option<bool> {
        let is_virtual = self.take("v");
        if !is_virtual {
            self.need("h")?;
        }
        for _ in 0..=usize::from(is_virtual) {
            self.take("n");
            self.number()?;
            self.need("_")?;
        }
        Some(is_virtual)
    }

    /// Reads a name. If `of_function` is true, the template arguments of this name are kept,
    /// because the function's parameters may refer to them.
    pub fn name(&mut self, of_function: bool) -> Option<Name> {
        self.nest(|p| p.name_text(of_function))
    }

    fn name_text(&mut self, of_function: bool) -> Option<Name> {
        let mut name = match (self.peek(), self.peek_at(1)) {
            (b'N', _) => return self.nested_name(of_function),
            (b'Z', _) => return self.local_name(of_function),
            (b'S', second) if second != b't' => {
                let text = self.substitution(false)?;
                // Without template arguments, a substitution stands for a whole type and cannot be
                // a name.
                if self.peek() != b'I' {
                    return None;
                }
                Name {
                    text,
                    has_return_type: false,
                    qualifiers: String::new(),
                }
            }
            _ => {
                let std = if self.take("St") { "std::" } else { "" };
                let component = self.component("")?;
                let text = self.limits.join(&[std, &component.text])?;
                let text = Text::name(&text, &component.leaf);
                if self.peek() == b'I' {
                    self.substitutions.push(text.clone());
                }
                Name {
                    text,
                    has_return_type: false,
                    qualifiers: String::new(),
                }
            }
        };
        if self.peek() == b'I' {
            name.text = self.with_arguments(&name.text, of_function)?;
            name.has_return_type = true;
        }
        Some(name)
    }

    fn nested_name(&mut self, of_function: bool) -> Option<Name> {
        self.need("N")?;
        let mut qualifiers = String::new();
        let mut is_special = false;
        if !self.take("H") {
            for qualifier in self.qualifiers() {
                qualifiers.push(' ');
                qualifiers.push_str(qualifier);
            }
            let reference = [("R", " &"), ("O", " &&")];
            if let Some((_, text)) = reference.iter().find(|(sign, _)| self.take(sign)) {
                qualifiers.push_str(text);
            }
        }
        let mut current: Option<Text> = None;
        let mut has_arguments = false;
        while !self.take("E") {
            self.limits.enter()?;
            self.limits.leave();
            let is_first = current.is_none();
            let (next, is_substitutable) = match (&current, self.peek()) {
                (Some(prefix), b'I') => {
                    has_arguments = true;
                    let prefix = prefix.clone();
                    (self.with_arguments(&prefix, of_function)?, true)
                }
                (None, b'S') if self.take("St") => (Text::name("std", "std"), false),
                (None, b'S') => (self.substitution(true)?, false),
                (None, b'T') => (self.template_parameter()?, true),
                (None, b'D') if matches!(self.peek_at(1), b't' | b'T') => {
                    (Text::plain(&self.decltype()?), true)
                }
                // M says that the next component is in the initializer of the data member.
                (Some(prefix), b'M') => {
                    self.at += 1;
                    (prefix.clone(), false)
                }
                _ => {
                    let prefix = current.take().unwrap_or_default();
                    let component = self.component(&prefix.leaf)?;
                    (is_special, has_arguments) = (component.is_special, false);
                    let sign = if is_first { "" } else { "::" };
                    let prefix = self.limits.whole(&prefix)?;
                    let text = self.limits.join(&[&prefix, sign, &component.text])?;
                    (Text::name(&text, &component.leaf), true)
                }
            };
            if is_substitutable && self.peek() != b'E' {
                self.substitutions.push(next.clone());
            }
            current = Some(next);
        }
        Some(Name {
            text: current?,
            has_return_type: has_arguments && !is_special,
            qualifiers,
        })
    }

    fn local_name(&mut self, of_function: bool) -> Option<Name> {
        self.need("Z")?;
        let function = self.encoding(true)?;
        self.need("E")?;
        let mut name = Name {
            text: Text::plain("string literal"),
            has_return_type: false,
            qualifiers: String::new(),
        };
        let mut default_argument = String::new();
        if self.take("s") {
            self.discriminator();
        } else {
            if self.take("d") {
                let number = self.sequence_number()?.saturating_add(1);
                default_argument = format!("{{default arg#{number}}}::");
            }
            name = self.name(of_function)?;
            self.discriminator();
        }
        let parts = [&function, "::", &default_argument, &name.text.left];
        name.text.left = self.limits.join(&parts)?.into();
        Some(name)
    }

    /// Skips the discriminator, which distinguishes local entities with the same name, if one is
    /// next.
    fn discriminator(&mut self) {
        let before = self.at;
        let is_whole = self.take("__") && self.number().is_some() && self.take("_")
            || self.take("_") && self.peek().is_ascii_digit() && {
                self.at += 1;
                true
            };
        if !is_whole {
            self.at = before;
        }
    }

    /// Reads one component of a qualified name. `enclosing` is the name of the enclosing class,
    /// from which constructors and destructors take their names.
    fn component(&mut self, enclosing: &str) -> Option<Component> {
        // The letter L precedes a name with internal linkage. F precedes the name of a friend.
        self.take("L");
        let mut component = match (self.peek(), self.peek_at(1)) {
            (b'0'..=b'9', _) => {
                let name = self.source_name()?;
                Component {
                    leaf: name.clone(),
                    text: name,
                    is_special: false,
                }
            }
            (b'U', b'l') => self.lambda()?,
            (b'U', b't') => {
                self.at += 2;
                let number = self.sequence_number()?.saturating_add(1);
                let text = format!("{{unnamed type#{number}}}");
                Component {
                    leaf: text.clone(),
                    text,
                    is_special: false,
                }
            }
            (b'C', b'1'..=b'5') => {
                self.at += 2;
                Component::special(enclosing)
            }
            (b'C', b'I') => {
                self.at += 3;
                self.any_type()?;
                Component::special(enclosing)
            }
            (b'D', b'0'..=b'5') => {
                self.at += 2;
                Component::special(&self.limits.join(&["~", enclosing])?)
            }
            (b'D', b'C') => {
                self.at += 2;
                let mut names = Vec::new();
                while !self.take("E") {
                    names.push(self.source_name()?);
                }
                let names = self.limits.join_list(&names)?;
                let text = self.limits.join(&["[", &names, "]"])?;
                Component {
                    leaf: text.clone(),
                    text,
                    is_special: false,
                }
            }
            (b'F', _) => {
                self.at += 1;
                return self.nest(|p| p.component(enclosing));
            }
            _ => self.operator_name()?,
        };
        while self.take("B") {
            let tag = self.source_name()?;
            component.text = self.limits.join(&[&component.text, "[abi:", &tag, "]"])?;
        }
        (!component.text.is_empty()).then_some(component)
    }

    pub fn source_name(&mut self) -> Option<String> {
        let length = self.number().filter(|n| *n > 0)?;
        let bytes = self.input.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        let is_anonymous = bytes.len() >= 10
            && bytes.starts_with(b"_GLOBAL_")
            && matches!(bytes[8], b'.' | b'_' | b'$')
            && bytes[9] == b'N';
        match is_anonymous {
            true => Some("(anonymous namespace)".to_owned()),
            false => self.limits.join(&[&visible::decode(bytes)]),
        }
    }

    fn lambda(&mut self) -> Option<Component> {
        self.need("Ul")?;
        self.lambdas += 1;
        while self.template_parameter_declaration()? {}
        let parameters = self.parameters()?;
        self.skip_constraint()?;
        self.lambdas -= 1;
        self.need("E")?;
        let number = self.sequence_number()?.saturating_add(1).to_string();
        let parts = ["{lambda(", &parameters, ")#", &number, "}"];
        let text = self.limits.join(&parts)?;
        Some(Component {
            leaf: text.clone(),
            text,
            is_special: false,
        })
    }

    /// Reads the name of an operator function, such as `operator+`.
    fn operator_name(&mut self) -> Option<Component> {
        if self.take("cv") {
            let outer = std::mem::replace(&mut self.in_conversion, true);
            let mut to = self.type_text()?;
            self.in_conversion = outer;
            if self.peek() != b'I' && to.contains(MARK) {
                to = self.fill_marks(&to, &self.arguments.clone())?;
            }
            return Some(Component::special(&self.limits.join(&["operator ", &to])?));
        }
        let text = if self.take("li") {
            let name = self.source_name()?;
            self.limits.join(&["operator\"\" ", &name])?
        } else if self.peek() == b'v' && self.peek_at(1).is_ascii_digit() {
            self.at += 2;
            let name = self.source_name()?;
            self.limits.join(&["operator ", &name])?
        } else {
            let operator = self.operator()?;
            let is_word = operator.starts_with(|c: char| c.is_ascii_lowercase());
            let blank = if is_word { " " } else { "" };
            ["operator", blank, operator].concat()
        };
        Some(Component {
            leaf: text.clone(),
            text,
            is_special: false,
        })
    }
}

impl Component {
    fn special(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            leaf: text.to_owned(),
            is_special: true,
        }
    }
}
