//! Values.

use super::types::TypeAhead;
use super::{NESTING_MAX, Parser, Result};
use crate::ast::{ArithmeticOp, BindMarker, Literal, LiteralKind, NativeType, Term};
use crate::token::Tok;

impl Parser<'_> {
    /// Any value.
    pub(super) fn term(&mut self) -> Result<Term> {
        // Fast path: most terms are a constant or a marker without an operator after it.
        let kind = self.kind();
        if (kind == Tok::Qmark || is_constant(kind)) && self.nesting < NESTING_MAX {
            let is_operand = matches!(
                self.kind_at(1),
                Tok::Plus | Tok::Minus | Tok::Star | Tok::Slash | Tok::Percent
            );
            if !is_operand {
                return match kind {
                    Tok::Qmark => Ok(Term::Bind(self.bind_marker()?)),
                    _ => Ok(Term::Literal(self.constant()?)),
                };
            }
        }
        self.nested(Self::sum)
    }

    /// Sums of products in one loop, because every frame counts at full depth.
    #[inline(never)]
    fn sum(&mut self) -> Result<Term> {
        let start = self.start();
        let mut sum: Option<(Term, ArithmeticOp)> = None;
        loop {
            let mut product = self.product()?;
            if let Some((left, op)) = sum {
                product = self.binary(start, op, left, product);
            }
            let op = match self.kind() {
                // `c = <value> + c` prepends: the plus belongs to the assignment.
                Tok::Plus if self.is_column_at(1) && !self.is_term_at(1) => return Ok(product),
                Tok::Plus => ArithmeticOp::Add,
                Tok::Minus => ArithmeticOp::Subtract,
                _ => return Ok(product),
            };
            self.bump();
            self.count_operator()?;
            sum = Some((product, op));
        }
    }

    #[inline]
    fn product(&mut self) -> Result<Term> {
        let start = self.start();
        let mut product: Option<(Term, ArithmeticOp)> = None;
        loop {
            let sign = self.start();
            let negative = self.eat(Tok::Minus);
            let mut operand = self.simple_term()?;
            if negative {
                self.count_operator()?;
                operand = Term::Negate(Box::new(operand), self.span_from(sign));
            }
            if let Some((left, op)) = product {
                operand = self.binary(start, op, left, operand);
            }
            let op = match self.kind() {
                Tok::Star => ArithmeticOp::Multiply,
                Tok::Slash => ArithmeticOp::Divide,
                Tok::Percent => ArithmeticOp::Modulo,
                _ => return Ok(operand),
            };
            self.bump();
            self.count_operator()?;
            product = Some((operand, op));
        }
    }

    #[inline(never)]
    fn binary(&self, start: usize, op: ArithmeticOp, left: Term, right: Term) -> Term {
        let (left, right) = (Box::new(left), Box::new(right));
        Term::Binary { op, left, right, span: self.span_from(start) }
    }

    #[inline(never)]
    fn simple_term(&mut self) -> Result<Term> {
        match self.kind() {
            Tok::Null => {
                let start = self.start();
                self.bump();
                Ok(Term::Null(self.span_from(start)))
            }
            Tok::Qmark | Tok::Colon => Ok(Term::Bind(self.bind_marker()?)),
            Tok::BracketOpen => self.list_literal(),
            Tok::BraceOpen => self.brace_literal(),
            Tok::ParenOpen => self.paren_term(),
            Tok::Cast if self.kind_at(1) == Tok::ParenOpen => self.cast_term(),
            kind if is_constant(kind) => Ok(Term::Literal(self.constant()?)),
            kind if kind.is_name() || kind.is_function_name() => self.function_term(),
            _ => Err(self.no_viable()),
        }
    }

    #[inline(never)]
    fn function_term(&mut self) -> Result<Term> {
        if !self.is_function_at(0) {
            // The name itself could still have become a function call; what follows it spoils it.
            let ahead = if self.kind_at(1) == Tok::Dot { 3 } else { 1 };
            let ahead = if ahead == 3 && !self.kind_at(2).is_function_name() { 2 } else { ahead };
            return Err(self.no_viable_from(self.at, ahead));
        }
        let start = self.start();
        let name = self.function_name()?;
        let args = self.paren_list_or_empty(Self::term)?;
        Ok(Term::FunctionCall { name, args, span: self.span_from(start) })
    }

    #[inline(never)]
    fn cast_term(&mut self) -> Result<Term> {
        let start = self.start();
        self.expect_all(&[Tok::Cast, Tok::ParenOpen])?;
        let term = Box::new(self.nested(Self::simple_term)?);
        self.expect(Tok::As)?;
        let ty = self.native_type()?;
        self.expect(Tok::ParenClose)?;
        Ok(Term::Cast { term, ty, span: self.span_from(start) })
    }

    pub(super) fn native_type(&mut self) -> Result<NativeType> {
        let Some(native) = self.kind().native() else { return Err(self.no_viable()) };
        self.bump();
        Ok(native)
    }

    /// `(type) term` or a tuple.
    #[inline(never)]
    fn paren_term(&mut self) -> Result<Term> {
        let is_hint = match self.type_in_parens_at(0) {
            TypeAhead::No => false,
            // A bare name is no value, so it can only be a type.
            TypeAhead::Yes | TypeAhead::Name(_) => true,
            TypeAhead::String(next) => self.is_term_at(next),
        };
        if !is_hint {
            return self.tuple_literal();
        }
        let start = self.start();
        self.bump();
        let ty = self.raw_type()?;
        self.expect(Tok::ParenClose)?;
        let term = Box::new(self.nested(Self::simple_term)?);
        Ok(Term::TypeHint { ty, term, span: self.span_from(start) })
    }

    /// Returns true if a simple term starts `ahead` tokens on.
    fn is_term_at(&mut self, ahead: usize) -> bool {
        match self.kind_at(ahead) {
            Tok::Null | Tok::Qmark | Tok::BracketOpen | Tok::BraceOpen | Tok::ParenOpen => true,
            Tok::Cast => self.kind_at(ahead + 1) == Tok::ParenOpen || self.is_function_at(ahead),
            // Behind a key it separates the value; only a bare name after it makes a marker.
            Tok::Colon => {
                self.kind_at(ahead + 1).is_name()
                    && !matches!(self.kind_at(ahead + 2), Tok::ParenOpen | Tok::Dot)
            }
            kind => is_constant(kind) || self.is_function_at(ahead),
        }
    }

    /// `'(' term (',' term)* ')'`.
    pub(super) fn tuple_literal(&mut self) -> Result<Term> {
        let start = self.start();
        let items = self.paren_list(Self::term)?;
        Ok(Term::Tuple(items, self.span_from(start)))
    }

    #[inline(never)]
    fn list_literal(&mut self) -> Result<Term> {
        let start = self.start();
        self.expect(Tok::BracketOpen)?;
        let items = match self.kind() {
            Tok::BracketClose => Vec::new(),
            _ => self.comma_list(Self::term)?,
        };
        self.expect(Tok::BracketClose)?;
        Ok(Term::List(items, self.span_from(start)))
    }

    /// Set, map or user type value.
    #[inline(never)]
    fn brace_literal(&mut self) -> Result<Term> {
        let start = self.start();
        self.expect(Tok::BraceOpen)?;
        if self.eat(Tok::BraceClose) {
            return Ok(Term::Set(Vec::new(), self.span_from(start)));
        }
        if self.kind().is_name() && self.kind_at(1) == Tok::Colon {
            let fields = self.comma_list(|p| {
                let field = p.ident()?;
                p.expect(Tok::Colon)?;
                Ok((field, p.term()?))
            })?;
            self.expect(Tok::BraceClose)?;
            return Ok(Term::Udt(fields, self.span_from(start)));
        }
        let first = self.term()?;
        if self.kind() == Tok::Colon {
            self.bump();
            let mut entries = vec![(first, self.term()?)];
            while self.eat(Tok::Comma) {
                entries.push(self.map_entry()?);
            }
            self.expect(Tok::BraceClose)?;
            return Ok(Term::Map(entries, self.span_from(start)));
        }
        let mut items = vec![first];
        while self.eat(Tok::Comma) {
            items.push(self.term()?);
        }
        self.expect(Tok::BraceClose)?;
        Ok(Term::Set(items, self.span_from(start)))
    }

    /// `term ':' term`.
    pub(super) fn map_entry(&mut self) -> Result<(Term, Term)> {
        let key = self.term()?;
        self.expect(Tok::Colon)?;
        Ok((key, self.term()?))
    }

    /// `?` or `:name`.
    #[inline(never)]
    pub(super) fn bind_marker(&mut self) -> Result<BindMarker> {
        let start = self.start();
        let name = if self.eat(Tok::Colon) {
            Some(self.ident()?.text)
        } else {
            self.expect(Tok::Qmark)?;
            None
        };
        let index = self.bind_markers.len();
        self.bind_markers.push(name.clone());
        Ok(BindMarker { index, name, span: self.span_from(start) })
    }

    /// An integer literal or a bind marker.
    pub(super) fn int_value(&mut self) -> Result<Term> {
        self.value_of(Tok::Integer)
    }

    /// A duration literal or a bind marker.
    pub(super) fn duration_value(&mut self) -> Result<Term> {
        self.value_of(Tok::DurationLiteral)
    }

    fn value_of(&mut self, kind: Tok) -> Result<Term> {
        match self.kind() {
            Tok::Qmark | Tok::Colon => Ok(Term::Bind(self.bind_marker()?)),
            found if found == kind => Ok(Term::Literal(self.constant()?)),
            _ => Err(self.no_viable()),
        }
    }

    /// A constant.
    #[inline(never)]
    pub(super) fn constant(&mut self) -> Result<Literal> {
        if !is_constant(self.kind()) {
            return Err(self.no_viable());
        }
        let start = self.start();
        let token = self.bump();
        let written = token.text(self.text);
        let kind = match token.kind {
            Tok::StringLiteral => LiteralKind::String(token.value(self.text).into_owned()),
            Tok::Integer => LiteralKind::Integer(written.to_owned()),
            Tok::FloatLiteral => {
                if let Some(reason) = float_refusal(written) {
                    return Err(self.number_failure(reason));
                }
                LiteralKind::Float(written.to_owned())
            }
            Tok::BooleanLiteral => LiteralKind::Boolean(written.eq_ignore_ascii_case("true")),
            Tok::DurationLiteral => LiteralKind::Duration(written.to_owned()),
            Tok::HexNumber => LiteralKind::Hex(written.get(2..).unwrap_or("").to_owned()),
            // The sign of a NaN is lost, as in Cassandra.
            Tok::Nan | Tok::NegativeNan => LiteralKind::Float("NaN".to_owned()),
            Tok::Infinity => LiteralKind::Float("Infinity".to_owned()),
            Tok::NegativeInfinity => LiteralKind::Float("-Infinity".to_owned()),
            _ => match uuid::Uuid::try_parse(written) {
                Ok(uuid) => LiteralKind::Uuid(uuid),
                Err(_) => return Err(self.no_viable()),
            },
        };
        let is_kept = match &kind {
            LiteralKind::Boolean(value) => written == if *value { "true" } else { "false" },
            LiteralKind::Hex(_) => written.starts_with("0x"),
            LiteralKind::Uuid(_) => !written.bytes().any(|byte| byte.is_ascii_uppercase()),
            _ => true,
        };
        let written = (!is_kept).then(|| written.into());
        Ok(Literal { kind, written, span: self.span_from(start) })
    }
}

/// Why Cassandra's parser fails on a number: it makes a decimal of it, and compares that with a
/// decimal of the double nearest to it, which infinity has none of.
fn float_refusal(text: &str) -> Option<&'static str> {
    let exponent = text.split(['e', 'E']).nth(1).unwrap_or("");
    let digits = exponent.trim_start_matches(['+', '-']).trim_start_matches('0');
    if digits.len() > 10 {
        return Some("Too many nonzero exponent digits.");
    }
    let is_infinite = text.parse::<f64>().is_ok_and(f64::is_infinite);
    is_infinite.then_some(
        "Character I is neither a decimal digit number, decimal point, nor \"e\" notation \
         exponential mark.",
    )
}

/// Returns true if the token is a constant.
pub(super) fn is_constant(kind: Tok) -> bool {
    matches!(
        kind,
        Tok::StringLiteral
            | Tok::Integer
            | Tok::FloatLiteral
            | Tok::BooleanLiteral
            | Tok::DurationLiteral
            | Tok::UuidLiteral
            | Tok::HexNumber
            | Tok::Nan
            | Tok::NegativeNan
            | Tok::Infinity
            | Tok::NegativeInfinity
    )
}
