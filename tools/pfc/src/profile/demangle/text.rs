// SPDX-License-Identifier: GPL-2.0

//! The text of C++ names and types, and the limits on the work for one name.

use std::rc::Rc;

use super::MAX_DEMANGLED_NAME_BYTES;

/// The maximum depth of nested parts of a name.
const MAX_NESTING_DEPTH: usize = 512;
/// The maximum work for demangling one name, in units of work. One unit is a part of the name that
/// is read, or a byte that is written.
pub const MAX_DEMANGLING_WORK: usize = 1 << 20;

/// The kind of a type, which decides where the `*` of a pointer to the type is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TypeShape {
    #[default]
    Plain,
    Function,
    Array,
}

/// The text of a type or of a name, in two parts: a pointer's `*` is written between them, as in
/// `int (*)(char)`.
#[derive(Clone, Debug, Default)]
pub struct TwoPartText {
    pub left: Rc<str>,
    pub right: Rc<str>,
    pub shape: TypeShape,
    /// The last component of a name, without its template arguments. The constructor of a class has
    /// the same name as the last component of the class's name.
    pub last_component: Rc<str>,
    /// If the type refers to a parameter pack, the position of the type in the mangled name.
    pub pack_type_mangled_position: Option<usize>,
}

impl TwoPartText {
    pub fn plain(text: &str) -> Self {
        Self {
            left: text.into(),
            ..Self::default()
        }
    }

    pub fn from_name(text: &str, leaf: &str) -> Self {
        Self {
            left: text.into(),
            last_component: leaf.into(),
            ..Self::default()
        }
    }
}

/// A template argument: a single one, or a parameter pack with all of its elements.
#[derive(Clone, Debug)]
pub enum TemplateArgument {
    One(TwoPartText),
    Pack(Vec<TwoPartText>),
}

/// The work that was spent on a name so far, and the current nesting depth.
#[derive(Debug, Default)]
pub struct DemanglingLimits {
    pub spent_work: usize,
    nesting_depth: usize,
}

impl DemanglingLimits {
    /// Must be called before a nested part of a name is read. Returns `None` if the depth or the
    /// work exceeds its limit.
    pub fn enter_nested_part(&mut self) -> Option<()> {
        self.nesting_depth += 1;
        self.spend_work(1)?;
        (self.nesting_depth <= MAX_NESTING_DEPTH).then_some(())
    }

    pub fn leave_nested_part(&mut self) {
        self.nesting_depth -= 1;
    }

    /// Counts work on a name. Returns `None` if the total work on the name exceeds
    /// [`MAX_DEMANGLING_WORK`].
    pub fn spend_work(&mut self, work: usize) -> Option<()> {
        self.spent_work += work;
        (self.spent_work <= MAX_DEMANGLING_WORK).then_some(())
    }

    /// Concatenates texts. Returns `None` if the result is longer than
    /// [`MAX_DEMANGLED_NAME_BYTES`], or if the work on the name exceeds [`MAX_DEMANGLING_WORK`].
    pub fn join(&mut self, parts: &[&str]) -> Option<String> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.spend_work(length)?;
        (length <= MAX_DEMANGLED_NAME_BYTES).then(|| parts.concat())
    }

    /// Joins texts with commas. Empty texts, which stand for empty parameter packs, are left out.
    pub fn join_with_commas(&mut self, texts: &[String]) -> Option<String> {
        let length: usize = texts.iter().map(|text| text.len() + 2).sum();
        self.spend_work(length)?;
        if length > MAX_DEMANGLED_NAME_BYTES {
            return None;
        }
        let all = texts.iter().map(String::as_str);
        Some(all.filter(|t| !t.is_empty()).collect::<Vec<_>>().join(", "))
    }

    /// Returns the whole text of a type or name, by joining its left part and its right part.
    pub fn join_two_parts(&mut self, text: &TwoPartText) -> Option<String> {
        match text.shape {
            TypeShape::Plain => self.join(&[&text.left, &text.right]),
            TypeShape::Function | TypeShape::Array => self.join(&[&text.left, " ", &text.right]),
        }
    }

    /// Returns the type of a pointer or reference to a type; `sign` is `*`, `&` or `&&`.
    pub fn pointer_type(&mut self, to: &TwoPartText, sign: &str) -> Option<TwoPartText> {
        // Reference collapsing: a reference to a reference is && only if both references are &&.
        let (left, sign) = match (to.left.strip_suffix("&&"), to.left.strip_suffix('&')) {
            (Some(left), _) if sign.starts_with('&') => (left, sign),
            (_, Some(left)) if sign.starts_with('&') => (left, "&"),
            _ => (&*to.left, sign),
        };
        let (left, right) = match to.shape {
            TypeShape::Plain => (self.join(&[left, sign])?, to.right.clone()),
            TypeShape::Function => (
                self.join(&[left, " (", sign])?,
                self.join(&[")", &to.right])?.into(),
            ),
            TypeShape::Array => (
                self.join(&[left, " (", sign])?,
                self.join(&[") ", &to.right])?.into(),
            ),
        };
        Some(TwoPartText {
            left: left.into(),
            right,
            ..TwoPartText::default()
        })
    }

    /// Returns a type with a qualifier, such as `const`.
    pub fn qualify_type(&mut self, of: &TwoPartText, qualifier: &str) -> Option<TwoPartText> {
        let mut text = of.clone();
        text.pack_type_mangled_position = None;
        let end = if of.shape == TypeShape::Function {
            &mut text.right
        } else {
            &mut text.left
        };
        let known = end.strip_suffix(qualifier);
        if !known.is_some_and(|before| before.ends_with(' ')) {
            *end = self.join(&[end, " ", qualifier])?.into();
        }
        Some(text)
    }
}
