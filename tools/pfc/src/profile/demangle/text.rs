// SPDX-License-Identifier: GPL-2.0

//! The text of C++ names and types, and the limits on the work for one name.

use std::rc::Rc;

use super::MAX_LENGTH;

/// The maximum depth of nested parts of a name.
const MAX_DEPTH: usize = 512;
/// The maximum work for demangling one name, in units of work. One unit is a part of the name that
/// is read, or a byte that is written.
pub const MAX_WORK: usize = 1 << 20;

/// The kind of a type, which decides where the `*` of a pointer to the type is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    #[default]
    Plain,
    Function,
    Array,
}

/// The text of a type or of a name, in two parts: a pointer's `*` is written between them, as in
/// `int (*)(char)`.
#[derive(Clone, Debug, Default)]
pub struct Text {
    pub left: Rc<str>,
    pub right: Rc<str>,
    pub shape: Shape,
    /// The last component of a name, without its template arguments. The constructor of a class has
    /// the same name as the last component of the class's name.
    pub leaf: Rc<str>,
    /// If the type refers to a parameter pack, the position of the type in the mangled name.
    pub pack_at: Option<usize>,
}

impl Text {
    pub fn plain(text: &str) -> Self {
        Self {
            left: text.into(),
            ..Self::default()
        }
    }

    pub fn name(text: &str, leaf: &str) -> Self {
        Self {
            left: text.into(),
            leaf: leaf.into(),
            ..Self::default()
        }
    }
}

/// A template argument: a single one, or a parameter pack with all of its elements.
#[derive(Clone, Debug)]
pub enum Argument {
    One(Text),
    Pack(Vec<Text>),
}

/// The work that was spent on a name so far, and the current nesting depth.
#[derive(Debug, Default)]
pub struct Limits {
    pub work: usize,
    depth: usize,
}

impl Limits {
    /// Must be called before a nested part of a name is read. Returns `None` if the depth or the
    /// work exceeds its limit.
    pub fn enter(&mut self) -> Option<()> {
        self.depth += 1;
        self.spend(1)?;
        (self.depth <= MAX_DEPTH).then_some(())
    }

    pub fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Counts work on a name. Returns `None` if the total work on the name exceeds [`MAX_WORK`].
    pub fn spend(&mut self, work: usize) -> Option<()> {
        self.work += work;
        (self.work <= MAX_WORK).then_some(())
    }

    /// Concatenates texts. Returns `None` if the result is longer than [`MAX_LENGTH`], or if the
    /// work on the name exceeds [`MAX_WORK`].
    pub fn join(&mut self, parts: &[&str]) -> Option<String> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.spend(length)?;
        (length <= MAX_LENGTH).then(|| parts.concat())
    }

    /// Joins texts with commas. Empty texts, which stand for empty parameter packs, are left out.
    pub fn join_list(&mut self, texts: &[String]) -> Option<String> {
        let length: usize = texts.iter().map(|text| text.len() + 2).sum();
        self.spend(length)?;
        if length > MAX_LENGTH {
            return None;
        }
        let all = texts.iter().map(String::as_str);
        Some(all.filter(|t| !t.is_empty()).collect::<Vec<_>>().join(", "))
    }

    /// Returns the whole text of a type or name, by joining its left part and its right part.
    pub fn whole(&mut self, text: &Text) -> Option<String> {
        match text.shape {
            Shape::Plain => self.join(&[&text.left, &text.right]),
            Shape::Function | Shape::Array => self.join(&[&text.left, " ", &text.right]),
        }
    }

    /// Returns the type of a pointer or reference to a type; `sign` is `*`, `&` or `&&`.
    pub fn pointer(&mut self, to: &Text, sign: &str) -> Option<Text> {
        // Reference collapsing: a reference to a reference is && only if both references are &&.
        let (left, sign) = match (to.left.strip_suffix("&&"), to.left.strip_suffix('&')) {
            (Some(left), _) if sign.starts_with('&') => (left, sign),
            (_, Some(left)) if sign.starts_with('&') => (left, "&"),
            _ => (&*to.left, sign),
        };
        let (left, right) = match to.shape {
            Shape::Plain => (self.join(&[left, sign])?, to.right.clone()),
            Shape::Function => (
                self.join(&[left, " (", sign])?,
                self.join(&[")", &to.right])?.into(),
            ),
            Shape::Array => (
                self.join(&[left, " (", sign])?,
                self.join(&[") ", &to.right])?.into(),
            ),
        };
        Some(Text {
            left: left.into(),
            right,
            ..Text::default()
        })
    }

    /// Returns a type with a qualifier, such as `const`.
    pub fn qualify(&mut self, of: &Text, qualifier: &str) -> Option<Text> {
        let mut text = of.clone();
        text.pack_at = None;
        let end = if of.shape == Shape::Function {
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
