// SPDX-License-Identifier: GPL-2.0

//! Parses a filter's text into a tree.

use engine::filter::{ANY, EQ, FIELD_NAME_MAX, FLOAT, GE, GT, LE, LT, NE, SIGNED};

use crate::{error, Error};

/// Maximum depth of parentheses, because the parser is recursive.
const DEEPEST: u32 = 100;

const OPERATORS: &str = "== != < <= > >= & ~ !~";

/// A node of the tree.
#[derive(Debug)]
pub(crate) enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Compare(Compare),
}

/// A comparison of a field with a constant.
#[derive(Debug)]
pub(crate) struct Compare {
    /// The offset in the text, in bytes.
    pub position: usize,
    pub field: String,
    pub what: What,
}

/// The operator of a comparison, and its constant.
#[derive(Debug)]
pub(crate) enum What {
    Number { op: u8, value: u64 },
    Glob { pattern: String, matches: bool },
}

/// An operator as it is written, before the kind of the constant is known.
#[derive(Clone, Copy, PartialEq)]
enum Sign {
    Number(u8),
    Matches(bool),
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    deep: u32,
}

pub(crate) fn parse(text: &str) -> Result<Node, Error> {
    let mut parser = Parser {
        text,
        at: 0,
        deep: 0,
    };
    let node = parser.any()?;
    match parser.peek() {
        None => Ok(node),
        Some(')') => error(parser.at, "unmatched )"),
        Some(_) => error(parser.at, "expected &&, || or the end of the filter"),
    }
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Skips blanks and returns the next character.
    fn peek(&mut self) -> Option<char> {
        self.at = self.text.len() - self.rest().trim_start().len();
        self.rest().chars().next()
    }

    fn take(&mut self, what: &str) -> bool {
        self.peek();
        let there = self.rest().starts_with(what);
        if there {
            self.at += what.len();
        }
        there
    }

    /// Takes characters as long as they are good.
    fn word(&mut self, good: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|one| !good(one)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn any(&mut self) -> Result<Node, Error> {
        let mut nodes = vec![self.all()?];
        while self.take("||") {
            nodes.push(self.all()?);
        }
        Ok(one_or(nodes, Node::Any))
    }

    fn all(&mut self) -> Result<Node, Error> {
        let mut nodes = vec![self.not()?];
        while self.take("&&") {
            nodes.push(self.not()?);
        }
        Ok(one_or(nodes, Node::All))
    }

    fn not(&mut self) -> Result<Node, Error> {
        let mut negated = false;
        while self.take("!") {
            negated = !negated;
        }
        let node = if self.take("(") {
            let opened = self.at - 1;
            self.deep += 1;
            if self.deep > DEEPEST {
                return error(opened, format!("more than {DEEPEST} nested parentheses"));
            }
            let node = self.any()?;
            if !self.take(")") {
                return match self.peek() {
                    None => error(opened, "unmatched ("),
                    Some(_) => error(self.at, "expected &&, || or )"),
                };
            }
            self.deep -= 1;
            node
        } else {
            Node::Compare(self.compare()?)
        };
        Ok(if negated {
            Node::Not(Box::new(node))
        } else {
            node
        })
    }

    fn compare(&mut self) -> Result<Compare, Error> {
        self.peek();
        let position = self.at;
        let field = self.field()?;
        self.peek();
        let sign_at = self.at;
        let sign = self.sign(&field)?;
        let first = self.peek();
        let at = self.at;
        let what = match (first, sign) {
            (Some('"'), Sign::Matches(matches)) => What::Glob {
                pattern: self.glob()?,
                matches,
            },
            (Some('"'), Sign::Number(op @ (EQ | NE))) => What::Glob {
                pattern: self.exactly()?,
                matches: op == EQ,
            },
            (Some('"'), _) => {
                return error(sign_at, "a text can be compared with == != ~ !~ only");
            }
            (Some('0'..='9' | '-' | '+' | '.'), Sign::Number(op)) => self.number(op)?,
            (_, Sign::Matches(_)) => {
                return error(at, "expected a glob in quotes, for example \"p*\"")
            }
            (_, Sign::Number(EQ | NE)) => {
                return error(at, "expected a number, or a text in quotes");
            }
            _ => return error(at, "expected a number"),
        };
        match (&what, field.as_str()) {
            (What::Number { .. }, "$marker") => {
                error(at, "$marker is a text: expected a text in quotes")
            }
            (What::Glob { .. }, "$thread" | "$process") => {
                error(at, format!("{field} is a number: expected a number"))
            }
            _ => Ok(Compare {
                position,
                field,
                what,
            }),
        }
    }

    fn field(&mut self) -> Result<String, Error> {
        let position = self.at;
        let dollar = self.take("$");
        let name = self.word(|one| one.is_ascii_alphanumeric() || one == '_');
        if dollar {
            return match name {
                "thread" | "process" | "marker" => Ok(format!("${name}")),
                _ => error(position, "expected $thread, $process or $marker"),
            };
        }
        if name.is_empty() {
            return error(position, "expected a comparison, for example count > 3");
        }
        if name.len() > FIELD_NAME_MAX {
            return error(
                position,
                format!("name of a field with more than {FIELD_NAME_MAX} characters"),
            );
        }
        Ok(name.to_string())
    }

    fn sign(&mut self, field: &str) -> Result<Sign, Error> {
        let at = self.at;
        let signs = [
            ("&&", None),
            ("==", Some(Sign::Number(EQ))),
            ("!=", Some(Sign::Number(NE))),
            ("<=", Some(Sign::Number(LE))),
            (">=", Some(Sign::Number(GE))),
            ("<", Some(Sign::Number(LT))),
            (">", Some(Sign::Number(GT))),
            ("&", Some(Sign::Number(ANY))),
            ("!~", Some(Sign::Matches(false))),
            ("~", Some(Sign::Matches(true))),
        ];
        let found = signs
            .iter()
            .find(|(written, _)| self.rest().starts_with(written));
        match found {
            Some((written, Some(sign))) => {
                self.at += written.len();
                Ok(*sign)
            }
            _ if self.rest().starts_with('=') => error(at, "expected == instead of ="),
            _ => error(at, format!("expected one of {OPERATORS} after {field}")),
        }
    }

    fn number(&mut self, op: u8) -> Result<What, Error> {
        let position = self.at;
        let negative = self.take("-");
        let word = self.word(|one| one.is_ascii_alphanumeric() || matches!(one, '.' | '_'));
        let decimal = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
        if let Some((whole, fraction)) = word.split_once('.') {
            if !decimal(whole) || !decimal(fraction) {
                return error(
                    position,
                    "expected a number, for example 3, -3, 0x1f or 2.5",
                );
            }
            if op == ANY {
                return error(position, "& needs a number without a fraction");
            }
            let value: f64 = word.parse().unwrap_or(f64::INFINITY);
            let value = if negative { -value } else { value };
            return Ok(What::Number {
                op: op | FLOAT,
                value: value.to_bits(),
            });
        }
        let hex = word.strip_prefix("0x").or(word.strip_prefix("0X"));
        let good = match hex {
            Some(digits) => !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit()),
            None => decimal(word),
        };
        if !good {
            return error(
                position,
                "expected a number, for example 3, -3, 0x1f or 2.5",
            );
        }
        let parsed = match hex {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        let Ok(value) = parsed else {
            return error(position, "number above the maximum, 18446744073709551615");
        };
        if !negative || value == 0 {
            return Ok(What::Number { op, value });
        }
        if value > 1 << 63 {
            return error(position, "number below the minimum, -9223372036854775808");
        }
        Ok(What::Number {
            op: op | SIGNED,
            value: value.wrapping_neg(),
        })
    }

    /// Takes a text in quotes. Returns its offset, and what is between the quotes, escapes
    /// included.
    fn quoted(&mut self) -> Result<(usize, &'t str), Error> {
        let opened = self.at;
        self.at += 1;
        let mut escaped = false;
        for (at, byte) in self.rest().bytes().enumerate() {
            match byte {
                0 => return error(self.at + at, "NUL byte in a text"),
                b'\\' if !escaped => escaped = true,
                b'"' if !escaped => {
                    let inner = &self.rest()[..at];
                    let from = self.at;
                    self.at += at + 1;
                    return Ok((from, inner));
                }
                _ => escaped = false,
            }
        }
        error(opened, "unmatched \"")
    }

    fn glob(&mut self) -> Result<String, Error> {
        let (from, inner) = self.quoted()?;
        // The kernel would take a [ without a ] as a character, but it is more likely a mistake.
        let mut class = None;
        let mut skipped = false;
        for (at, byte) in inner.bytes().enumerate() {
            if skipped {
                skipped = false;
                continue;
            }
            match (byte, class) {
                (b'\\', _) => skipped = true,
                (b'[', None) => {
                    let but = inner[at + 1..].starts_with('!');
                    class = Some((at, at + 1 + usize::from(but)));
                }
                (b']', Some((_, first))) if at != first => class = None,
                _ => {}
            }
        }
        match class {
            Some((at, _)) => error(from + at, "unmatched [; use \\[ for the character"),
            None => Ok(inner.to_string()),
        }
    }

    /// Takes a text in quotes, and returns a glob that matches only this text.
    fn exactly(&mut self) -> Result<String, Error> {
        let (from, inner) = self.quoted()?;
        let mut pattern = String::new();
        let mut characters = inner.char_indices();
        while let Some((at, one)) = characters.next() {
            let literal = match one {
                '\\' => match characters.next() {
                    Some((_, next @ ('"' | '\\'))) => next,
                    _ => return error(from + at, "expected \\\" or \\\\; for a glob use ~"),
                },
                _ => one,
            };
            if matches!(literal, '*' | '?' | '[' | '\\') {
                pattern.push('\\');
            }
            pattern.push(literal);
        }
        Ok(pattern)
    }
}

fn one_or(mut nodes: Vec<Node>, many: impl Fn(Vec<Node>) -> Node) -> Node {
    match (nodes.len(), nodes.pop()) {
        (1, Some(node)) => node,
        (_, last) => {
            nodes.extend(last);
            many(nodes)
        }
    }
}
