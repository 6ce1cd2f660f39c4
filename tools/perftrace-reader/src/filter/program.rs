// SPDX-License-Identifier: GPL-2.0

//! Assembles a syntax tree into the steps of a filter. The step of a comparison contains the
//! numbers of the next steps for true and for false, so `&&`, `||` and `!` need no steps of their
//! own.

use std::collections::HashMap;

use protocols::filter::MAX_FILTER_BYTES;
use protocols::filter::{
    Step, FILTER_HEADER_BYTES, FILTER_STEP_BYTES, OP_GLOB, STEP_ACCEPT, STEP_REJECT,
};

use super::parse::{Comparison, FieldCondition, FilterNode};
use super::{filter_error, Error};

/// The target of a step's branch: the end of the filter, or a label for a step that does not exist
/// yet.
#[derive(Clone, Copy)]
enum BranchTarget {
    End(u16),
    Label(usize),
}

/// A step whose text offsets and branch targets are not resolved to numbers yet.
struct UnresolvedFilterStep {
    op: u8,
    field: usize,
    yes: BranchTarget,
    no: BranchTarget,
    value: StepConstant,
}

enum StepConstant {
    Bits(u64),
    Text(usize),
}

#[derive(Default)]
struct FilterProgram {
    steps: Vec<UnresolvedFilterStep>,
    /// The step to which each label is bound.
    step_of_label: Vec<u16>,
    texts: Vec<String>,
    index_of_text: HashMap<String, usize>,
    text_bytes: usize,
    /// The position of the comparison at which the filter exceeded its maximum size.
    oversize_position: Option<usize>,
}

pub(crate) fn assemble_filter(node: &FilterNode) -> Result<Vec<u8>, Error> {
    let mut program = FilterProgram::default();
    program.emit_node(
        node,
        BranchTarget::End(STEP_ACCEPT),
        BranchTarget::End(STEP_REJECT),
    );
    match program.oversize_position {
        Some(position) => filter_error(
            position,
            format!("the filter is too long: more than {MAX_FILTER_BYTES} bytes when compiled"),
        ),
        None => Ok(program.encode()),
    }
}

impl FilterProgram {
    fn emit_node(&mut self, node: &FilterNode, yes: BranchTarget, no: BranchTarget) {
        match node {
            FilterNode::Compare(compare) => self.emit_comparison(compare, yes, no),
            FilterNode::Not(inner) => self.emit_node(inner, no, yes),
            FilterNode::All(nodes) => self.emit_operands(nodes, |this, node, next| match next {
                Some(next) => this.emit_node(node, next, no),
                None => this.emit_node(node, yes, no),
            }),
            FilterNode::Any(nodes) => self.emit_operands(nodes, |this, node, next| match next {
                Some(next) => this.emit_node(node, yes, next),
                None => this.emit_node(node, yes, no),
            }),
        }
    }

    /// Assembles the operands `nodes` of `&&` or `||`, from left to right. Calls `each` for each
    /// operand, with the label of the next operand, or with `None` for the last operand.
    fn emit_operands(
        &mut self,
        nodes: &[FilterNode],
        each: impl Fn(&mut Self, &FilterNode, Option<BranchTarget>),
    ) {
        let Some((last, others)) = nodes.split_last() else {
            return;
        };
        for node in others {
            let label = self.new_label();
            each(self, node, Some(BranchTarget::Label(label)));
            self.bind_label(label);
        }
        each(self, last, None);
    }

    fn new_label(&mut self) -> usize {
        self.step_of_label.push(0);
        self.step_of_label.len() - 1
    }

    fn bind_label(&mut self, label: usize) {
        self.step_of_label[label] = self.steps.len() as u16;
    }

    fn intern_text(&mut self, text: &str) -> usize {
        if let Some(&number) = self.index_of_text.get(text) {
            return number;
        }
        let number = self.texts.len();
        self.text_bytes += text.len() + 1;
        self.index_of_text.insert(text.to_string(), number);
        self.texts.push(text.to_string());
        number
    }

    fn emit_comparison(&mut self, compare: &Comparison, yes: BranchTarget, no: BranchTarget) {
        // Once the filter has exceeded its maximum size, do not store the steps of further
        // comparisons.
        if self.oversize_position.is_some() {
            return;
        }
        let field = self.intern_text(&compare.field);
        match &compare.condition {
            FieldCondition::Number { op, value } => self.steps.push(UnresolvedFilterStep {
                op: *op,
                field,
                yes,
                no,
                value: StepConstant::Bits(*value),
            }),
            FieldCondition::Glob {
                pattern,
                matches: true,
            } => self.emit_glob(field, pattern, yes, no),
            // `!=` and `!~` are false if the event has no text field of this name. A step with the
            // glob `*` checks that the field exists. `$marker` always exists.
            FieldCondition::Glob { pattern, .. } => {
                if compare.field != "$marker" {
                    let label = self.new_label();
                    self.emit_glob(field, "*", BranchTarget::Label(label), no);
                    self.bind_label(label);
                }
                self.emit_glob(field, pattern, no, yes);
            }
        }
        if self.program_bytes() > MAX_FILTER_BYTES {
            self.oversize_position = Some(compare.position);
        }
    }

    fn emit_glob(&mut self, field: usize, pattern: &str, yes: BranchTarget, no: BranchTarget) {
        let value = StepConstant::Text(self.intern_text(pattern));
        self.steps.push(UnresolvedFilterStep {
            op: OP_GLOB,
            field,
            yes,
            no,
            value,
        });
    }

    fn program_bytes(&self) -> usize {
        FILTER_HEADER_BYTES + self.steps.len() * FILTER_STEP_BYTES + self.text_bytes
    }

    fn encode(&self) -> Vec<u8> {
        let mut offsets = Vec::new();
        let mut offset = FILTER_HEADER_BYTES + self.steps.len() * FILTER_STEP_BYTES;
        for text in &self.texts {
            offsets.push(offset);
            offset += text.len() + 1;
        }
        let resolve = |target| match target {
            BranchTarget::End(end) => end,
            BranchTarget::Label(label) => self.step_of_label[label],
        };
        let mut bytes = Vec::with_capacity(self.program_bytes());
        bytes.extend_from_slice(&(self.program_bytes() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.steps.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&0u16.to_le_bytes());
        for step in &self.steps {
            let step = Step {
                op: step.op,
                reserved: 0,
                field: offsets[step.field] as u16,
                yes: resolve(step.yes),
                no: resolve(step.no),
                value: match step.value {
                    StepConstant::Bits(bits) => bits,
                    StepConstant::Text(text) => offsets[text] as u64,
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
