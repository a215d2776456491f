//! What a template's text may ask of the stack and the memory, settled before it is parsed.
//!
//! minijinja charges fuel for instructions and bytes, but three things escape it. Parsing, compiling and dropping
//! an expression recurse once for each operator of a chain (`1+1+1…`) and each `elif`. Values nest without end
//! (`{% set ns.s = [ns.s] %}`) or contain themselves, and printing or dropping them recurses as deep. And `+`, `*`
//! and slices of lists are lazy: they cost nothing when they are made and everything when they are read.
//!
//! The one idea: between two delimiters stands a *region*, and whatever a template keeps passes through one.
//!
//! ```text
//! {% set ns.s = [ns.s, a + b] * 2 %}     regions, innermost first:  ns.s   a + b   [ … ] * 2
//! {% set ns.s = ([ns.s, (a + b)|kept_value ] * 2)|kept_in_namespace %}
//! ```
//!
//! So the depth of the syntax tree is bounded by adding up the operators of the regions around a place; and a region
//! that makes a new value is sent through a filter (`keep.rs`) which computes what is lazy and measures the value.
//! The tokens are minijinja's own: what is counted here is what is parsed there.
//!
//! Not here: steps and bytes, which fuel bounds; the meaning of expressions.

use minijinja::machinery::{Span, Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::keep::{KEPT_FILTER, NAMESPACE_FILTER};
use super::tags::ITERABLE_FILTER;
use super::{LIMITS, TemplateError, syntax_error};

/// A template that may be parsed.
pub(super) struct Bounded {
    /// The source with its checks.
    pub(super) source: String,
    /// Filters and tests it names.
    pub(super) names: Vec<Named>,
}

/// A name that must be known to the environment.
pub(super) struct Named {
    pub(super) kind: NameKind,
    pub(super) name: String,
    /// 1-based.
    pub(super) line: usize,
}

/// Whose name it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    Filter,
    Test,
}

/// Checks `source` and puts the checks of values into it.
pub(super) fn bounded(source: &str, syntax: &SyntaxConfig) -> Result<Bounded, TemplateError> {
    if source.len() > LIMITS.source_bytes_max {
        return Err(TemplateError::TooMuch {
            limit: format!("{} bytes of template", LIMITS.source_bytes_max),
        });
    }
    let mut scan = Scan {
        source,
        edits: Vec::new(),
        names: Vec::new(),
        blocks: Vec::new(),
    };
    let mut code = Vec::new();
    for token in tokenize(source, false, syntax.clone()) {
        let (token, span) = token.map_err(|error| syntax_error(&error))?;
        match token {
            Token::TemplateData(_) => (),
            Token::VariableStart | Token::BlockStart => (),
            Token::VariableEnd => scan.expression(&std::mem::take(&mut code))?,
            Token::BlockEnd => scan.tag(&std::mem::take(&mut code))?,
            token => code.push((token, span)),
        }
    }
    // Code that does not end is a syntax error, which minijinja finds; but it parses up to there.
    scan.expression(&code)?;
    Ok(Bounded {
        source: scan.edited(),
        names: scan.names,
    })
}

type Code<'a> = [(Token<'a>, Span)];

struct Scan<'a> {
    source: &'a str,
    /// What is put in, and where.
    edits: Vec<(usize, String)>,
    names: Vec<Named>,
    /// For each block that is open, how often the syntax tree nests for it: once, and once for each `elif`.
    blocks: Vec<usize>,
}

/// What stands between two delimiters.
#[derive(Clone, Copy, Default)]
struct Region {
    /// Bytes of the source, once there is a token.
    span: Option<(usize, usize)>,
    /// Tokens that nest the syntax tree.
    num_operators: usize,
    /// Depth of the deepest group within.
    inner_depth: usize,
    makes_value: bool,
    after_operand: bool,
}

/// Where a region stands, which decides what its value is sent through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The value is used at once, or may not be changed (the call of a `call` tag).
    Passing,
    /// The value may be kept.
    Kept,
    /// The value is assigned to an attribute of a namespace.
    InNamespace,
}

/// An open bracket, or the whole of the code.
struct Group {
    region: Region,
    /// Depth of the deepest region that is already closed.
    depth: usize,
    makes_value: bool,
    follows_operand: bool,
    place: Place,
}

impl Group {
    fn new(place: Place) -> Group {
        Group {
            region: Region::default(),
            depth: 0,
            makes_value: false,
            follows_operand: false,
            place,
        }
    }
}

impl Scan<'_> {
    fn tag(&mut self, code: &Code<'_>) -> Result<(), TemplateError> {
        let Some((Token::Ident(keyword), span)) = code.first() else {
            return self.expression(code);
        };
        let line = self.line(span);
        let rest = &code[1..];
        match *keyword {
            "include" | "import" | "from" | "extends" => {
                let reason = format!("`{keyword}`: a chat template has no other templates");
                return Err(TemplateError::Syntax { line, reason });
            }
            "set" => self.set(rest, line)?,
            "for" => self.loop_head(rest)?,
            "with" => self.assignments(rest)?,
            "if" | "elif" | "autoescape" => self.group(rest, Place::Kept)?,
            _ => self.group(rest, Place::Passing)?,
        }
        match *keyword {
            "elif" => self.blocks.last_mut().map_or((), |depth| *depth += 1),
            "if" | "for" | "macro" | "call" | "filter" | "with" | "block" | "autoescape" => {
                self.blocks.push(1);
            }
            "set" if !rest.iter().any(is_assign) => self.blocks.push(1),
            _ if keyword.starts_with("end") => {
                self.blocks.pop();
            }
            _ => (),
        }
        if self.blocks.iter().sum::<usize>() > LIMITS.block_depth_max {
            return Err(too_deep(line, "blocks and `elif`", LIMITS.block_depth_max));
        }
        Ok(())
    }

    fn set(&mut self, code: &Code<'_>, line: usize) -> Result<(), TemplateError> {
        let assign = code.iter().position(is_assign);
        let (target, value) = code.split_at(assign.unwrap_or(code.len()));
        let before_filters = target
            .split(|(token, _)| matches!(token, Token::Pipe))
            .next();
        let target_names = before_filters.unwrap_or(target);
        let in_namespace = target_names
            .iter()
            .any(|(token, _)| matches!(token, Token::Dot));
        self.group(target, Place::Passing)?;
        match (value, in_namespace) {
            ([], true) if target_names.len() < target.len() => {
                let reason = "a filtered block cannot be set into a namespace".to_owned();
                Err(TemplateError::Syntax { line, reason })
            }
            ([], _) => Ok(()),
            ([_, value @ ..], true) => self.group(value, Place::InNamespace),
            ([_, value @ ..], false) => self.group(value, Place::Kept),
        }
    }

    /// `target in region [if region] [recursive]`: Python allows no condition of `… if … else …` there.
    fn loop_head(&mut self, code: &Code<'_>) -> Result<(), TemplateError> {
        let code = match code {
            [rest @ .., (Token::Ident("recursive"), _)] => rest,
            _ => code,
        };
        let word =
            |wanted| move |token: &Token<'_>| matches!(token, Token::Ident(it) if *it == wanted);
        // Another `in` may follow, but it belongs to a region.
        let Some(border) = outer_position(code, word("in")) else {
            return self.group(code, Place::Passing);
        };
        let list = &code[border + 1..];
        let end = outer_position(list, word("if")).unwrap_or(list.len());
        self.group(&list[..end], Place::Kept)?;
        match &list[end..] {
            [_, condition @ ..] => self.group(condition, Place::Kept),
            [] => Ok(()),
        }
    }

    /// `name = region, name = region`
    fn assignments(&mut self, code: &Code<'_>) -> Result<(), TemplateError> {
        let mut rest = code;
        while let Some(assign) = outer_position(rest, |token| matches!(token, Token::Assign)) {
            let value = &rest[assign + 1..];
            let end = outer_position(value, |token| matches!(token, Token::Comma));
            let end = end.unwrap_or(value.len());
            self.group(&value[..end], Place::Kept)?;
            rest = &value[end..];
        }
        Ok(())
    }

    fn expression(&mut self, code: &Code<'_>) -> Result<(), TemplateError> {
        self.group(code, Place::Kept)
    }

    /// Everything in `code`, which is one region outside brackets.
    fn group(&mut self, code: &Code<'_>, place: Place) -> Result<(), TemplateError> {
        let mut groups = vec![Group::new(place)];
        for (idx, (token, span)) in code.iter().enumerate() {
            let is_outermost = groups.len() == 1;
            let group = groups.last_mut().expect("the outermost stays");
            match token {
                Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => {
                    let mut inner = Group::new(Place::Kept);
                    inner.follows_operand =
                        group.region.after_operand && !matches!(token, Token::BraceOpen);
                    // A call makes a value, and so does what is no subscript and no mere bracket.
                    inner.makes_value = match token {
                        Token::ParenOpen => inner.follows_operand,
                        Token::BracketOpen => !inner.follows_operand,
                        _ => true,
                    };
                    group.region.extend(span);
                    groups.push(inner);
                }
                Token::ParenClose | Token::BracketClose | Token::BraceClose if !is_outermost => {
                    let mut closed = groups.pop().expect("not the outermost");
                    self.end_region(&mut closed);
                    let group = groups.last_mut().expect("the outermost stays");
                    group.region.extend(span);
                    group.region.num_operators += 1;
                    group.region.inner_depth = group.region.inner_depth.max(closed.depth);
                    group.region.makes_value |= closed.makes_value;
                    group.region.after_operand = true;
                }
                Token::Comma | Token::Colon | Token::Assign if !is_outermost => {
                    // A tuple, or a slice.
                    group.makes_value |= !matches!(token, Token::Assign);
                    self.end_region(group);
                }
                // In a call, `*x` and `**x` are no products.
                Token::Mul | Token::Pow if !is_outermost && group.region.span.is_none() => (),
                _ => {
                    group.region.extend(span);
                    self.inner_token(&mut group.region, code, idx);
                }
            }
            self.check_depth(&groups, span)?;
        }
        let mut outermost = None;
        // Brackets that do not close are a syntax error, but are parsed up to there.
        while let Some(mut group) = groups.pop() {
            group.region.inner_depth = group.region.inner_depth.max(outermost.unwrap_or(0));
            self.end_region(&mut group);
            outermost = Some(group.depth);
        }
        Ok(())
    }

    fn inner_token(&mut self, region: &mut Region, code: &Code<'_>, idx: usize) {
        let (token, span) = &code[idx];
        region.after_operand = match token {
            Token::Ident(word) => {
                !matches!(*word, "in" | "and" | "or" | "not" | "if" | "else" | "is")
            }
            Token::Str(_) | Token::String(_) => true,
            Token::Int(_) | Token::Int128(_) | Token::Float(_) => true,
            _ => false,
        };
        region.num_operators += usize::from(!region.after_operand);
        match token {
            // `+`, `*` and a bare tuple.
            Token::Plus | Token::Mul | Token::Comma => region.makes_value = true,
            Token::Pipe => {
                let name = self.named(NameKind::Filter, &code[idx + 1..], span);
                region.makes_value |= name != Some(ITERABLE_FILTER);
            }
            Token::Ident("is") => {
                let rest = &code[idx + 1..];
                let rest = match rest {
                    [(Token::Ident("not"), _), rest @ ..] => rest,
                    _ => rest,
                };
                self.named(NameKind::Test, rest, span);
            }
            _ => (),
        }
    }

    /// Notes the name at the beginning of `code`, if there is one and it has no dots.
    fn named<'a>(&mut self, kind: NameKind, code: &Code<'a>, span: &Span) -> Option<&'a str> {
        let [(Token::Ident(name), _), rest @ ..] = code else {
            return None;
        };
        if !matches!(rest, [(Token::Dot, _), ..]) {
            let line = self.line(span);
            let name = (*name).to_owned();
            self.names.push(Named { kind, name, line });
        }
        Some(name)
    }

    /// Ends the region of `group`, which begins another one.
    fn end_region(&mut self, group: &mut Group) {
        let region = std::mem::take(&mut group.region);
        group.depth = group.depth.max(region.depth());
        let filter = match group.place {
            Place::InNamespace => NAMESPACE_FILTER,
            Place::Kept if region.makes_value => KEPT_FILTER,
            Place::Kept | Place::Passing => return,
        };
        if let Some((start, end)) = region.span {
            self.edits.push((start, "(".to_owned()));
            // A space, since `if` may follow without one.
            self.edits.push((end, format!(")|{filter} ")));
        }
    }

    fn check_depth(&self, groups: &[Group], span: &Span) -> Result<(), TemplateError> {
        let (innermost, outer) = groups.split_last().expect("the outermost stays");
        let around: usize = outer.iter().map(|it| it.region.num_operators + 1).sum();
        let depth = around + innermost.region.depth().max(innermost.depth);
        if groups.len() > LIMITS.bracket_depth_max {
            return Err(too_deep(
                self.line(span),
                "brackets",
                LIMITS.bracket_depth_max,
            ));
        }
        if depth > LIMITS.expression_depth_max {
            let limit = LIMITS.expression_depth_max;
            return Err(too_deep(self.line(span), "operators", limit));
        }
        Ok(())
    }

    fn line(&self, span: &Span) -> usize {
        let before = &self.source.as_bytes()[..span.start_offset as usize];
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }

    fn edited(&mut self) -> String {
        self.edits.sort_by_key(|(at, _)| *at);
        let mut edited = String::with_capacity(self.source.len() + 16 * self.edits.len());
        let mut last = 0;
        for (at, text) in &self.edits {
            edited.push_str(&self.source[last..*at]);
            edited.push_str(text);
            last = *at;
        }
        edited.push_str(&self.source[last..]);
        edited
    }
}

impl Region {
    /// How deep the syntax tree is, at most.
    fn depth(&self) -> usize {
        self.num_operators + self.inner_depth
    }

    fn extend(&mut self, span: &Span) {
        let start = self
            .span
            .map_or(span.start_offset as usize, |(start, _)| start);
        self.span = Some((start, span.end_offset as usize));
    }
}

fn is_assign((token, _): &(Token<'_>, Span)) -> bool {
    matches!(token, Token::Assign)
}

/// The first token outside all brackets that is `wanted`.
fn outer_position(code: &Code<'_>, wanted: impl Fn(&Token<'_>) -> bool) -> Option<usize> {
    let mut num_open = 0_usize;
    code.iter().position(|(token, _)| {
        match token {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => num_open += 1,
            Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                num_open = num_open.saturating_sub(1);
            }
            _ => (),
        }
        num_open == 0 && wanted(token)
    })
}

fn too_deep(line: usize, what: &str, max: usize) -> TemplateError {
    TemplateError::Syntax {
        line,
        reason: format!("more than {max} {what} within one another"),
    }
}
