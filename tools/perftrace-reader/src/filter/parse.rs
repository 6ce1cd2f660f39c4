// SPDX-License-Identifier: GPL-2.0

//! Parses the text of a filter into a syntax tree.

use protocols::filter::{
    MAX_FIELD_NAME_BYTES, OP_ANY, OP_EQ, OP_FLOAT, OP_GE, OP_GT, OP_LE, OP_LT, OP_NE, OP_SIGNED,
};

use super::{filter_error, Error};

/// Maximum depth of parentheses, which limits the recursion of the parser.
const MAX_PARENTHESIS_DEPTH: u32 = 100;

const OPERATOR_LIST_TEXT: &str = "== != < <= > >= & ~ !~";

/// A node of the syntax tree.
#[derive(Debug)]
pub(crate) enum FilterNode {
    All(Vec<FilterNode>),
    Any(Vec<FilterNode>),
    Not(Box<FilterNode>),
    Compare(Comparison),
}

/// A comparison of a field with a constant.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// The byte offset of the comparison in the text.
    pub position: usize,
    pub field: String,
    pub condition: FieldCondition,
}

/// The operator of a comparison, and its constant.
#[derive(Debug)]
pub(crate) enum FieldCondition {
    Number { op: u8, value: u64 },
    Glob { pattern: String, matches: bool },
}

/// An operator whose constant was not parsed yet.
#[derive(Clone, Copy, PartialEq)]
enum Operator {
    Number(u8),
    Matches(bool),
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: u32,
}

pub(crate) fn parse_filter(text: &str) -> Result<FilterNode, Error> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
    };
    let node = parser.parse_or()?;
    match parser.skip_blanks_and_peek() {
        None => Ok(node),
        Some(')') => filter_error(parser.at, "unmatched )"),
        Some(_) => filter_error(parser.at, "expected &&, || or the end of the filter"),
    }
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Skips blanks and returns the next character without consuming it.
    fn skip_blanks_and_peek(&mut self) -> Option<char> {
        self.at = self.text.len() - self.rest().trim_start().len();
        self.rest().chars().next()
    }

    fn accept_token(&mut self, token: &str) -> bool {
        self.skip_blanks_and_peek();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// Consumes characters for which `is_accepted` returns true, and returns them.
    fn take_while(&mut self, is_accepted: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !is_accepted(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn parse_or(&mut self) -> Result<FilterNode, Error> {
        let mut nodes = vec![self.parse_and()?];
        while self.accept_token("||") {
            nodes.push(self.parse_and()?);
        }
        Ok(combine_nodes(nodes, FilterNode::Any))
    }

    fn parse_and(&mut self) -> Result<FilterNode, Error> {
        let mut nodes = vec![self.parse_not()?];
        while self.accept_token("&&") {
            nodes.push(self.parse_not()?);
        }
        Ok(combine_nodes(nodes, FilterNode::All))
    }

    fn parse_not(&mut self) -> Result<FilterNode, Error> {
        let mut negated = false;
        while self.accept_token("!") {
            negated = !negated;
        }
        let node = if self.accept_token("(") {
            let opened = self.at - 1;
            self.depth += 1;
            if self.depth > MAX_PARENTHESIS_DEPTH {
                return filter_error(
                    opened,
                    format!("more than {MAX_PARENTHESIS_DEPTH} nested parentheses"),
                );
            }
            let node = self.parse_or()?;
            if !self.accept_token(")") {
                return match self.skip_blanks_and_peek() {
                    None => filter_error(opened, "unmatched ("),
                    Some(_) => filter_error(self.at, "expected &&, || or )"),
                };
            }
            self.depth -= 1;
            node
        } else {
            FilterNode::Compare(self.parse_comparison()?)
        };
        Ok(if negated {
            FilterNode::Not(Box::new(node))
        } else {
            node
        })
    }

    fn parse_comparison(&mut self) -> Result<Comparison, Error> {
        self.skip_blanks_and_peek();
        let position = self.at;
        let field = self.parse_field_name()?;
        self.skip_blanks_and_peek();
        let operator_at = self.at;
        let operator = self.parse_operator(&field)?;
        let first = self.skip_blanks_and_peek();
        let at = self.at;
        let condition = match (first, operator) {
            (Some('"'), Operator::Matches(matches)) => FieldCondition::Glob {
                pattern: self.parse_glob()?,
                matches,
            },
            (Some('"'), Operator::Number(op @ (OP_EQ | OP_NE))) => FieldCondition::Glob {
                pattern: self.parse_literal_as_glob()?,
                matches: op == OP_EQ,
            },
            (Some('"'), _) => {
                return filter_error(operator_at, "a text can be compared with == != ~ !~ only");
            }
            (Some('0'..='9' | '-' | '+' | '.'), Operator::Number(op)) => {
                self.parse_number_condition(op)?
            }
            (_, Operator::Matches(_)) => {
                return filter_error(at, "expected a glob in quotes, for example \"p*\"")
            }
            (_, Operator::Number(OP_EQ | OP_NE)) => {
                return filter_error(at, "expected a number, or a text in quotes");
            }
            _ => return filter_error(at, "expected a number"),
        };
        match (&condition, field.as_str()) {
            (FieldCondition::Number { .. }, "$marker") => {
                filter_error(at, "$marker is a text: expected a text in quotes")
            }
            (FieldCondition::Glob { .. }, "$thread" | "$process") => {
                filter_error(at, format!("{field} is a number: expected a number"))
            }
            _ => Ok(Comparison {
                position,
                field,
                condition,
            }),
        }
    }

    fn parse_field_name(&mut self) -> Result<String, Error> {
        let position = self.at;
        let dollar = self.accept_token("$");
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        if dollar {
            return match name {
                "thread" | "process" | "marker" => Ok(format!("${name}")),
                _ => filter_error(position, "expected $thread, $process or $marker"),
            };
        }
        if name.is_empty() {
            return filter_error(position, "expected a comparison, for example count > 3");
        }
        if name.len() > MAX_FIELD_NAME_BYTES {
            return filter_error(
                position,
                format!("name of a field with more than {MAX_FIELD_NAME_BYTES} characters"),
            );
        }
        Ok(name.to_string())
    }

    fn parse_operator(&mut self, field: &str) -> Result<Operator, Error> {
        let at = self.at;
        let operators = [
            ("&&", None),
            ("==", Some(Operator::Number(OP_EQ))),
            ("!=", Some(Operator::Number(OP_NE))),
            ("<=", Some(Operator::Number(OP_LE))),
            (">=", Some(Operator::Number(OP_GE))),
            ("<", Some(Operator::Number(OP_LT))),
            (">", Some(Operator::Number(OP_GT))),
            ("&", Some(Operator::Number(OP_ANY))),
            ("!~", Some(Operator::Matches(false))),
            ("~", Some(Operator::Matches(true))),
        ];
        let found = operators
            .iter()
            .find(|(symbol, _)| self.rest().starts_with(symbol));
        match found {
            Some((symbol, Some(operator))) => {
                self.at += symbol.len();
                Ok(*operator)
            }
            _ if self.rest().starts_with('=') => filter_error(at, "expected == instead of ="),
            _ => filter_error(
                at,
                format!("expected one of {OPERATOR_LIST_TEXT} after {field}"),
            ),
        }
    }

    fn parse_number_condition(&mut self, op: u8) -> Result<FieldCondition, Error> {
        let position = self.at;
        let negative = self.accept_token("-");
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_'));
        let decimal = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
        if let Some((whole, fraction)) = word.split_once('.') {
            if !decimal(whole) || !decimal(fraction) {
                return filter_error(
                    position,
                    "expected a number, for example 3, -3, 0x1f or 2.5",
                );
            }
            if op == OP_ANY {
                return filter_error(position, "& needs a number without a fraction");
            }
            let value: f64 = word.parse().unwrap_or(f64::INFINITY);
            let value = if negative { -value } else { value };
            return Ok(FieldCondition::Number {
                op: op | OP_FLOAT,
                value: value.to_bits(),
            });
        }
        let hex = word.strip_prefix("0x").or(word.strip_prefix("0X"));
        let is_valid = match hex {
            Some(digits) => !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit()),
            None => decimal(word),
        };
        if !is_valid {
            return filter_error(
                position,
                "expected a number, for example 3, -3, 0x1f or 2.5",
            );
        }
        let parsed = match hex {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        let Ok(value) = parsed else {
            return filter_error(position, "number above the maximum, 18446744073709551615");
        };
        if !negative || value == 0 {
            return Ok(FieldCondition::Number { op, value });
        }
        if value > 1 << 63 {
            return filter_error(position, "number below the minimum, -9223372036854775808");
        }
        Ok(FieldCondition::Number {
            op: op | OP_SIGNED,
            value: value.wrapping_neg(),
        })
    }

    /// Consumes a text in quotes. Returns the offset of the character after the opening quote, and
    /// the characters between the quotes. Escapes such as `\"` are not resolved.
    fn parse_quoted(&mut self) -> Result<(usize, &'t str), Error> {
        let opened = self.at;
        self.at += 1;
        let mut escaped = false;
        for (at, byte) in self.rest().bytes().enumerate() {
            match byte {
                0 => return filter_error(self.at + at, "NUL byte in a text"),
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
        filter_error(opened, "unmatched \"")
    }

    fn parse_glob(&mut self) -> Result<String, Error> {
        let (from, inner) = self.parse_quoted()?;
        // Reject a [ without a ]: the kernel would treat it as an ordinary character, but it is
        // probably a mistake.
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
                    let is_negated = inner[at + 1..].starts_with('!');
                    class = Some((at, at + 1 + usize::from(is_negated)));
                }
                (b']', Some((_, first))) if at != first => class = None,
                _ => {}
            }
        }
        match class {
            Some((at, _)) => filter_error(from + at, "unmatched [; use \\[ for the character"),
            None => Ok(inner.to_string()),
        }
    }

    /// Consumes a text in quotes, and returns a glob that matches only this text.
    fn parse_literal_as_glob(&mut self) -> Result<String, Error> {
        let (from, inner) = self.parse_quoted()?;
        let mut pattern = String::new();
        let mut characters = inner.char_indices();
        while let Some((at, c)) = characters.next() {
            let literal = match c {
                '\\' => match characters.next() {
                    Some((_, next @ ('"' | '\\'))) => next,
                    _ => return filter_error(from + at, "expected \\\" or \\\\; for a glob use ~"),
                },
                _ => c,
            };
            if matches!(literal, '*' | '?' | '[' | '\\') {
                pattern.push('\\');
            }
            pattern.push(literal);
        }
        Ok(pattern)
    }
}

fn combine_nodes(
    mut nodes: Vec<FilterNode>,
    many: impl Fn(Vec<FilterNode>) -> FilterNode,
) -> FilterNode {
    match (nodes.len(), nodes.pop()) {
        (1, Some(node)) => node,
        (_, last) => {
            nodes.extend(last);
            many(nodes)
        }
    }
}
