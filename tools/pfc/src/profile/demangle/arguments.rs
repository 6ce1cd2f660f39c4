// SPDX-License-Identifier: GPL-2.0

//! Reads template arguments and C++20 constraints in mangled C++ names.

use super::cpp::{Parser, MARK, MARK_END};
use super::text::{Argument, Text};

impl Parser<'_> {
    /// Reads the template arguments at the current position, and appends them to `name`.
    pub fn with_arguments(&mut self, name: &Text, of_function: bool) -> Option<Text> {
        let (arguments, text) = self.nest(|p| p.template_arguments(of_function))?;
        let mut left = name.left.to_string();
        if left.contains(MARK) {
            left = self.fill_marks(&left, &arguments)?;
        }
        let blank = if left.ends_with('<') { " " } else { "" };
        let left = self.limits.join(&[&left, &name.right, blank, &text])?;
        Some(Text::name(&left, &name.leaf))
    }

    /// Replaces each [`MARK`] in the type of a conversion operator by the template argument that it
    /// stands for.
    pub fn fill_marks(&mut self, text: &str, arguments: &[Argument]) -> Option<String> {
        let mut filled = String::new();
        for (n, part) in text.split(MARK).enumerate() {
            let (number, rest) = match n {
                0 => (None, part),
                _ => part.split_once(MARK_END).map(|(n, rest)| (Some(n), rest))?,
            };
            let argument = match number {
                Some(number) => {
                    self.argument_text(arguments.get(number.parse::<usize>().ok()?)?)?
                }
                None => String::new(),
            };
            filled = self.limits.join(&[&filled, &argument, rest])?;
        }
        Some(filled)
    }

    pub fn argument_text(&mut self, argument: &Argument) -> Option<String> {
        match argument {
            Argument::One(text) => self.limits.whole(text),
            Argument::Pack(texts) => {
                let mut all = Vec::new();
                for text in texts {
                    all.push(self.limits.whole(text)?);
                }
                self.limits.join_list(&all)
            }
        }
    }

    fn template_arguments(&mut self, of_function: bool) -> Option<(Vec<Argument>, String)> {
        self.need("I")?;
        let outer = std::mem::replace(&mut self.in_conversion, false);
        let mut arguments: Vec<Argument> = Vec::new();
        while !self.take("E") {
            if self.peek() == b'Q' {
                self.skip_constraint()?;
                continue;
            }
            while self.template_parameter_declaration()? {}
            let argument = self.template_argument()?;
            if of_function {
                // Store the argument at once: a later argument of the same list may refer to it.
                match self.arguments.get_mut(arguments.len()) {
                    Some(outer) => *outer = argument.clone(),
                    None => self.arguments.push(argument.clone()),
                }
            }
            arguments.push(argument);
        }
        self.in_conversion = outer;
        if of_function {
            self.arguments.truncate(arguments.len());
        }
        let mut texts = Vec::new();
        for argument in &arguments {
            texts.push(self.argument_text(argument)?);
        }
        let list = self.limits.join_list(&texts)?;
        let blank = if list.ends_with('>') { " " } else { "" };
        let text = self.limits.join(&["<", &list, blank, ">"])?;
        Some((arguments, text))
    }

    fn template_argument(&mut self) -> Option<Argument> {
        match self.peek() {
            b'L' => Some(Argument::One(Text::plain(&self.literal()?))),
            b'X' => {
                self.at += 1;
                let text = self.expression()?;
                self.need("E")?;
                Some(Argument::One(Text::plain(&text)))
            }
            b'J' => {
                self.at += 1;
                let mut texts = Vec::new();
                while !self.take("E") {
                    match self.nest(Self::template_argument)? {
                        Argument::One(text) => texts.push(text),
                        Argument::Pack(more) => texts.extend(more),
                    }
                    self.limits.spend(texts.len())?;
                }
                Some(Argument::Pack(texts))
            }
            _ => Some(Argument::One(self.any_type()?)),
        }
    }

    /// Skips the declaration of a template parameter, which C++20 encodes for constrained
    /// parameters. Returns false if no declaration is next.
    pub fn template_parameter_declaration(&mut self) -> Option<bool> {
        if self.peek() != b'T' {
            return Some(false);
        }
        match self.peek_at(1) {
            b'y' => self.at += 2,
            b'n' => {
                self.at += 2;
                self.any_type()?;
            }
            b'k' => {
                self.at += 2;
                self.name(false)?;
            }
            b'p' => {
                self.at += 2;
                self.nest(Self::template_parameter_declaration)?
                    .then_some(())?;
            }
            b't' => {
                self.at += 2;
                while self.nest(Self::template_parameter_declaration)? {}
                self.skip_constraint()?;
                self.need("E")?;
            }
            _ => return Some(false),
        }
        Some(true)
    }

    /// Skips a C++20 requires clause if one is next.
    pub fn skip_constraint(&mut self) -> Option<()> {
        if self.take("Q") {
            self.expression()?;
        }
        Some(())
    }
}
