// SPDX-License-Identifier: GPL-2.0

//! Reads template arguments and C++20 constraints in mangled C++ names.

use super::cpp::{CppNameParser, PLACEHOLDER_END, PLACEHOLDER_START};
use super::text::{TemplateArgument, TwoPartText};

impl CppNameParser<'_> {
    /// Reads the template arguments at the current position, and appends them to `name`.
    pub fn append_template_arguments(
        &mut self,
        name: &TwoPartText,
        of_function: bool,
    ) -> Option<TwoPartText> {
        let (arguments, text) =
            self.read_nested_part(|p| p.read_template_arguments(of_function))?;
        let mut left = name.left.to_string();
        if left.contains(PLACEHOLDER_START) {
            left = self.fill_placeholders(&left, &arguments)?;
        }
        let blank = if left.ends_with('<') { " " } else { "" };
        let left = self.limits.join(&[&left, &name.right, blank, &text])?;
        Some(TwoPartText::from_name(&left, &name.last_component))
    }

    /// Replaces the placeholders in `text`, the type of a conversion operator. Each placeholder
    /// stands for one of the template arguments `arguments`: see [`PLACEHOLDER_START`].
    pub fn fill_placeholders(
        &mut self,
        text: &str,
        arguments: &[TemplateArgument],
    ) -> Option<String> {
        let mut filled = String::new();
        for (n, part) in text.split(PLACEHOLDER_START).enumerate() {
            let (number, rest) = match n {
                0 => (None, part),
                _ => part
                    .split_once(PLACEHOLDER_END)
                    .map(|(n, rest)| (Some(n), rest))?,
            };
            let argument = match number {
                Some(number) => {
                    self.format_argument(arguments.get(number.parse::<usize>().ok()?)?)?
                }
                None => String::new(),
            };
            filled = self.limits.join(&[&filled, &argument, rest])?;
        }
        Some(filled)
    }

    pub fn format_argument(&mut self, argument: &TemplateArgument) -> Option<String> {
        match argument {
            TemplateArgument::One(text) => self.limits.join_two_parts(text),
            TemplateArgument::Pack(texts) => {
                let mut all = Vec::new();
                for text in texts {
                    all.push(self.limits.join_two_parts(text)?);
                }
                self.limits.join_with_commas(&all)
            }
        }
    }

    fn read_template_arguments(
        &mut self,
        of_function: bool,
    ) -> Option<(Vec<TemplateArgument>, String)> {
        self.expect_text("I")?;
        let outer = std::mem::replace(&mut self.in_conversion_type, false);
        let mut arguments: Vec<TemplateArgument> = Vec::new();
        while !self.skip_prefix("E") {
            if self.peek_byte() == b'Q' {
                self.skip_constraint()?;
                continue;
            }
            while self.skip_template_parameter_declaration()? {}
            let argument = self.read_template_argument()?;
            if of_function {
                // Store the argument immediately, because a later argument of the same list may
                // refer to it.
                match self.arguments.get_mut(arguments.len()) {
                    Some(outer) => *outer = argument.clone(),
                    None => self.arguments.push(argument.clone()),
                }
            }
            arguments.push(argument);
        }
        self.in_conversion_type = outer;
        if of_function {
            self.arguments.truncate(arguments.len());
        }
        let mut texts = Vec::new();
        for argument in &arguments {
            texts.push(self.format_argument(argument)?);
        }
        let list = self.limits.join_with_commas(&texts)?;
        let blank = if list.ends_with('>') { " " } else { "" };
        let text = self.limits.join(&["<", &list, blank, ">"])?;
        Some((arguments, text))
    }

    fn read_template_argument(&mut self) -> Option<TemplateArgument> {
        match self.peek_byte() {
            b'L' => Some(TemplateArgument::One(TwoPartText::plain(
                &self.read_literal()?,
            ))),
            b'X' => {
                self.position += 1;
                let text = self.read_expression()?;
                self.expect_text("E")?;
                Some(TemplateArgument::One(TwoPartText::plain(&text)))
            }
            b'J' => {
                self.position += 1;
                let mut texts = Vec::new();
                while !self.skip_prefix("E") {
                    match self.read_nested_part(Self::read_template_argument)? {
                        TemplateArgument::One(text) => texts.push(text),
                        TemplateArgument::Pack(more) => texts.extend(more),
                    }
                    self.limits.spend_work(texts.len())?;
                }
                Some(TemplateArgument::Pack(texts))
            }
            _ => Some(TemplateArgument::One(self.read_type()?)),
        }
    }

    /// Skips the declaration of a template parameter, which C++20 encodes for constrained
    /// parameters. Returns false if no declaration is next.
    pub fn skip_template_parameter_declaration(&mut self) -> Option<bool> {
        if self.peek_byte() != b'T' {
            return Some(false);
        }
        match self.peek_byte_at(1) {
            b'y' => self.position += 2,
            b'n' => {
                self.position += 2;
                self.read_type()?;
            }
            b'k' => {
                self.position += 2;
                self.read_name(false)?;
            }
            b'p' => {
                self.position += 2;
                self.read_nested_part(Self::skip_template_parameter_declaration)?
                    .then_some(())?;
            }
            b't' => {
                self.position += 2;
                while self.read_nested_part(Self::skip_template_parameter_declaration)? {}
                self.skip_constraint()?;
                self.expect_text("E")?;
            }
            _ => return Some(false),
        }
        Some(true)
    }

    /// Skips a C++20 requires clause if one is next.
    pub fn skip_constraint(&mut self) -> Option<()> {
        if self.skip_prefix("Q") {
            self.read_expression()?;
        }
        Some(())
    }
}
