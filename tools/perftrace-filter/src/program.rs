// SPDX-License-Identifier: GPL-2.0

//! Assembles a tree into steps. Each comparison names the steps that follow it, so `&&`, `||` and
//! `!` need no steps of their own.

use std::collections::HashMap;

use engine::filter::{Step, ACCEPT, GLOB, HEADER, REJECT, STEP};
use engine::trace::FILTER_MAX;

use crate::parse::{Compare, Node, What};
use crate::{error, Error};

/// The step that follows another one: an end, or a label that is bound to a step later.
#[derive(Clone, Copy)]
enum Target {
    End(u16),
    Label(usize),
}

/// A step before the places of its texts and targets are known.
struct Draft {
    op: u8,
    field: usize,
    yes: Target,
    no: Target,
    value: Constant,
}

enum Constant {
    Bits(u64),
    Text(usize),
}

#[derive(Default)]
struct Program {
    steps: Vec<Draft>,
    /// The step to which each label is bound.
    labels: Vec<u16>,
    texts: Vec<String>,
    known: HashMap<String, usize>,
    text_bytes: usize,
    /// The position of the comparison with which the filter became too large.
    too_much: Option<usize>,
}

pub(crate) fn assemble(node: &Node) -> Result<Vec<u8>, Error> {
    let mut program = Program::default();
    program.node(node, Target::End(ACCEPT), Target::End(REJECT));
    match program.too_much {
        Some(position) => error(
            position,
            format!("the filter is too long: more than {FILTER_MAX} bytes when compiled"),
        ),
        None => Ok(program.bytes()),
    }
}

impl Program {
    fn node(&mut self, node: &Node, yes: Target, no: Target) {
        match node {
            Node::Compare(compare) => self.compare(compare, yes, no),
            Node::Not(inner) => self.node(inner, no, yes),
            Node::All(nodes) => self.chain(nodes, |this, node, next| match next {
                Some(next) => this.node(node, next, no),
                None => this.node(node, yes, no),
            }),
            Node::Any(nodes) => self.chain(nodes, |this, node, next| match next {
                Some(next) => this.node(node, yes, next),
                None => this.node(node, yes, no),
            }),
        }
    }

    /// Assembles nodes in order. `each` gets the label of the next node; the last node has none.
    fn chain(&mut self, nodes: &[Node], each: impl Fn(&mut Self, &Node, Option<Target>)) {
        let Some((last, others)) = nodes.split_last() else {
            return;
        };
        for node in others {
            let label = self.label();
            each(self, node, Some(Target::Label(label)));
            self.bind(label);
        }
        each(self, last, None);
    }

    fn label(&mut self) -> usize {
        self.labels.push(0);
        self.labels.len() - 1
    }

    fn bind(&mut self, label: usize) {
        self.labels[label] = self.steps.len() as u16;
    }

    fn text(&mut self, text: &str) -> usize {
        if let Some(&number) = self.known.get(text) {
            return number;
        }
        let number = self.texts.len();
        self.text_bytes += text.len() + 1;
        self.known.insert(text.to_string(), number);
        self.texts.push(text.to_string());
        number
    }

    fn compare(&mut self, compare: &Compare, yes: Target, no: Target) {
        // Comparisons that do not fit are not collected.
        if self.too_much.is_some() {
            return;
        }
        let field = self.text(&compare.field);
        match &compare.what {
            What::Number { op, value } => self.steps.push(Draft {
                op: *op,
                field,
                yes,
                no,
                value: Constant::Bits(*value),
            }),
            What::Glob {
                pattern,
                matches: true,
            } => self.glob(field, pattern, yes, no),
            // If there is no such text field, `!=` and `!~` are false, too. The glob `*` checks for
            // the field. `$marker` is always there.
            What::Glob { pattern, .. } => {
                if compare.field != "$marker" {
                    let label = self.label();
                    self.glob(field, "*", Target::Label(label), no);
                    self.bind(label);
                }
                self.glob(field, pattern, no, yes);
            }
        }
        if self.length() > FILTER_MAX {
            self.too_much = Some(compare.position);
        }
    }

    fn glob(&mut self, field: usize, pattern: &str, yes: Target, no: Target) {
        let value = Constant::Text(self.text(pattern));
        self.steps.push(Draft {
            op: GLOB,
            field,
            yes,
            no,
            value,
        });
    }

    fn length(&self) -> usize {
        HEADER + self.steps.len() * STEP + self.text_bytes
    }

    fn bytes(&self) -> Vec<u8> {
        let mut places = Vec::new();
        let mut place = HEADER + self.steps.len() * STEP;
        for text in &self.texts {
            places.push(place);
            place += text.len() + 1;
        }
        let leads = |target| match target {
            Target::End(end) => end,
            Target::Label(label) => self.labels[label],
        };
        let mut bytes = Vec::with_capacity(self.length());
        bytes.extend_from_slice(&(self.length() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.steps.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&0u16.to_le_bytes());
        for draft in &self.steps {
            let step = Step {
                op: draft.op,
                reserved: 0,
                field: places[draft.field] as u16,
                yes: leads(draft.yes),
                no: leads(draft.no),
                value: match draft.value {
                    Constant::Bits(bits) => bits,
                    Constant::Text(text) => places[text] as u64,
                },
            };
            bytes.extend_from_slice(&step.bytes());
        }
        for text in &self.texts {
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        }
        bytes
    }
}
