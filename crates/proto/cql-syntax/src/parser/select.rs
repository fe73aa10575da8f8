//! SELECT, its selectors, and PRUNE MATERIALIZED VIEW.

use super::terms::is_constant;
use super::types::TypeAhead;
use super::{Parser, Result};
use crate::SyntaxError;
use crate::ast::{
    ArithmeticOp, Ident, MetadataKind, Order, OrderBy, PruneView, RawType, Select, SelectItem,
    Selection, Selector, Term,
};
use crate::token::{Tok, Token};

/// Most items of a selection that room is made for before they are read.
const ITEMS_AT_FIRST: usize = 32;

/// Type hints around one that may turn out to be none, so that no token is read again for more of them.
const HINTS_MAX: usize = 8;

/// `[JSON] [DISTINCT] selection`.
struct Clause {
    json: bool,
    distinct: bool,
    selection: Selection,
}

impl Parser<'_> {
    pub(super) fn select(&mut self) -> Result<Select> {
        self.expect(Tok::Select)?;
        let Clause { json, distinct, selection } =
            self.clause_behind(Tok::Json, Self::clause_of_rows)?;
        self.expect(Tok::From)?;
        let table = self.table_name()?;
        let relations = self.where_clause()?;
        let mut group_by = Vec::new();
        if self.eat(Tok::Group) {
            self.expect(Tok::By)?;
            group_by = self.comma_list(Self::selector)?;
        }
        let mut order_by = Vec::new();
        if self.eat(Tok::Order) {
            self.expect(Tok::By)?;
            order_by = self.comma_list(Self::order_by)?;
        }
        let mut per_partition_limit = None;
        if self.eat(Tok::Per) {
            self.expect_all(&[Tok::Partition, Tok::Limit])?;
            per_partition_limit = Some(self.int_value()?);
        }
        let limit = if self.eat(Tok::Limit) { Some(self.int_value()?) } else { None };
        let allow_filtering = self.eat(Tok::Allow);
        if allow_filtering {
            self.expect(Tok::Filtering)?;
        }
        let bypass_cache = self.is_word("bypass") && self.is_word_at(1, "cache");
        if bypass_cache {
            self.bump();
            self.bump();
        }
        let timeout = self.using_timeout()?;
        Ok(Select {
            json,
            distinct,
            selection,
            table,
            relations,
            group_by,
            order_by,
            per_partition_limit,
            limit,
            allow_filtering,
            bypass_cache,
            timeout,
        })
    }

    pub(super) fn prune_view(&mut self) -> Result<PruneView> {
        self.bump();
        self.expect_all(&[Tok::Materialized, Tok::View])?;
        let view = self.table_name()?;
        let relations = self.where_clause()?;
        let timeout = self.using_timeout()?;
        Ok(PruneView { view, relations, timeout })
    }

    /// `[USING TIMEOUT duration]`, where nothing else may be used.
    pub(super) fn using_timeout(&mut self) -> Result<Option<Term>> {
        if self.kind() != Tok::Using || !self.is_word_at(1, "timeout") {
            return Ok(None);
        }
        self.bump();
        self.bump();
        Ok(Some(self.duration_value()?))
    }

    fn order_by(&mut self) -> Result<OrderBy> {
        let column = self.column()?;
        let mut ann_of = None;
        if self.eat(Tok::Ann) {
            self.expect(Tok::Of)?;
            ann_of = Some(self.term()?);
        }
        let order = if self.eat(Tok::Desc) {
            Order::Desc
        } else {
            self.eat(Tok::Asc);
            Order::Asc
        };
        Ok(OrderBy { column, ann_of, order })
    }

    /// Parses the clause after JSON.
    fn clause_of_rows(&mut self) -> Result<Clause> {
        self.clause_behind(Tok::Distinct, Self::clause_of_columns)
    }

    fn clause_of_columns(&mut self) -> Result<Clause> {
        Ok(Clause { json: false, distinct: false, selection: self.selection()? })
    }

    /// `[word] inner`. `json` and `distinct` are columns too. Each is a keyword if the rest can be
    /// parsed completely; otherwise it is a column, whatever error follows. Source: the syntactic
    /// predicates of `selectStatement` and `selectClause`; the first includes the second.
    fn clause_behind(
        &mut self,
        word: Tok,
        inner: fn(&mut Self) -> Result<Clause>,
    ) -> Result<Clause> {
        if self.kind() != word || !self.is_selection_at(1) {
            return inner(self);
        }
        let column = self.place();
        self.bump();
        let begins_at = self.at;
        let clause = inner(self);
        let is_keyword = self.is_decided_from(begins_at)
            || match &clause {
                Ok(clause) => self.ends_selection(&clause.selection),
                Err(error) => !self.is_given_up_for(error),
            };
        if !is_keyword {
            self.go_back(&column);
            return self.clause_of_columns();
        }
        let mut clause = clause?;
        match word {
            Tok::Json => clause.json = true,
            _ => clause.distinct = true,
        }
        Ok(clause)
    }

    /// `*` or a list.
    pub(super) fn selection(&mut self) -> Result<Selection> {
        if self.eat(Tok::Star) {
            return Ok(Selection::Wildcard);
        }
        let mut items = Vec::with_capacity(self.count_items());
        items.push(self.select_item()?);
        while self.eat(Tok::Comma) {
            items.push(self.select_item()?);
        }
        Ok(Selection::Items(items))
    }

    /// About as many items as are selected, for the list's first allocation.
    fn count_items(&self) -> usize {
        let ahead = self.tokens.get(self.at..).unwrap_or(&[]).iter().take(2 * ITEMS_AT_FIRST);
        let selected = ahead.take_while(|token| token.kind != Tok::From);
        1 + selected.filter(|token| token.kind == Tok::Comma).count()
    }

    #[inline]
    fn select_item(&mut self) -> Result<SelectItem> {
        // Fast path: most items are columns, and these tokens exclude anything else.
        if self.kind().is_name() && matches!(self.kind_at(1), Tok::Comma | Tok::From) {
            let column = self.ident()?;
            let span = column.span;
            return Ok(SelectItem { selector: Selector::Column(column), alias: None, span });
        }
        self.selected_expression()
    }

    #[inline(never)]
    fn selected_expression(&mut self) -> Result<SelectItem> {
        let start = self.start();
        let selector = self.selector()?;
        let span = self.span_from(start);
        let alias = if self.eat(Tok::As) { Some(self.ident()?) } else { None };
        Ok(SelectItem { selector, alias, span })
    }

    /// Any expression of a selection.
    pub(super) fn selector(&mut self) -> Result<Selector> {
        self.nested(Self::selector_sum)
    }

    /// Sums of products in one loop, because every frame counts at full depth.
    #[inline(never)]
    fn selector_sum(&mut self) -> Result<Selector> {
        let mut sum: Option<(Selector, ArithmeticOp)> = None;
        let mut product: Option<(Selector, ArithmeticOp)> = None;
        loop {
            let mut operand = self.signed_selector()?;
            if let Some((left, op)) = product.take() {
                operand = binary(op, left, operand);
            }
            let op = match self.kind() {
                Tok::Star => ArithmeticOp::Multiply,
                Tok::Slash => ArithmeticOp::Divide,
                Tok::Percent => ArithmeticOp::Modulo,
                other => {
                    if let Some((left, op)) = sum.take() {
                        operand = binary(op, left, operand);
                    }
                    let op = match other {
                        Tok::Plus => ArithmeticOp::Add,
                        Tok::Minus => ArithmeticOp::Subtract,
                        _ => return Ok(operand),
                    };
                    self.bump();
                    self.count_operator()?;
                    sum = Some((operand, op));
                    continue;
                }
            };
            self.bump();
            self.count_operator()?;
            product = Some((operand, op));
        }
    }

    fn signed_selector(&mut self) -> Result<Selector> {
        if self.kind() == Tok::Minus {
            return self.negated_selector();
        }
        let receiver = self.primary_selector()?;
        if !matches!(self.kind(), Tok::Dot | Tok::BracketOpen) {
            return Ok(receiver);
        }
        self.accessors(receiver)
    }

    #[inline(never)]
    fn negated_selector(&mut self) -> Result<Selector> {
        let mut signs = Vec::new();
        while self.kind() == Tok::Minus {
            self.count_operator()?;
            signs.push(self.start());
            self.bump();
        }
        let receiver = self.primary_selector()?;
        let mut selector = self.accessors(receiver)?;
        while let Some(start) = signs.pop() {
            selector = Selector::Negate(Box::new(selector), self.span_from(start));
        }
        Ok(selector)
    }

    /// Parses `.field`, `[key]`, `[from..to]` after a value. If one of them is invalid, or an
    /// unexpected token follows, Cassandra's parser accepts none of them: the first is reported as
    /// misplaced. One field of a column alone is accepted in any case.
    #[inline(never)]
    fn accessors(&mut self, mut receiver: Selector) -> Result<Selector> {
        let first = self.at;
        loop {
            // Unless the field's name cannot be a function's, which ends the search for one.
            let is_column = is_looked_behind(&receiver)
                && self.kind() == Tok::Dot
                && (self.kind_at(1).is_function_name() || !self.kind_at(1).is_name());
            if !matches!(self.kind(), Tok::Dot | Tok::BracketOpen) {
                return Ok(receiver);
            }
            receiver = match self.accessor(receiver) {
                Ok(selector) => selector,
                Err(error) if is_column || self.lex_error.is_some() || self.is_final => {
                    return Err(error);
                }
                Err(_) => return Err(self.misplaced(first)),
            };
            self.count_operator()?;
            let fits = match self.kind() {
                Tok::Dot | Tok::BracketOpen => true,
                // Not even after the last selector of GROUP BY.
                Tok::Semicolon => false,
                _ => is_column || self.ends_selector() || self.ends_group(),
            };
            if !fits {
                return Err(self.misplaced(first));
            }
        }
    }

    fn accessor(&mut self, receiver: Selector) -> Result<Selector> {
        if self.kind() == Tok::Dot { self.field(receiver) } else { self.subscript(receiver) }
    }

    fn field(&mut self, receiver: Selector) -> Result<Selector> {
        self.expect(Tok::Dot)?;
        let field = self.ident()?;
        Ok(Selector::Field { receiver: Box::new(receiver), field })
    }

    /// Returns true if an error is final for a selection that begins at a token, whatever else its
    /// beginning may be. A misplaced token inside of parentheses or brackets is not final.
    fn is_decided_from(&self, begins_at: usize) -> bool {
        let Some(misplaced) = self.misplaced else { return self.is_final };
        let before = self.tokens.get(begins_at..misplaced).unwrap_or(&[]);
        let opened = |token: &&Token| {
            matches!(token.kind, Tok::ParenOpen | Tok::BracketOpen | Tok::BraceOpen)
        };
        let closed = |token: &&Token| {
            matches!(token.kind, Tok::ParenClose | Tok::BracketClose | Tok::BraceClose)
        };
        before.iter().filter(opened).count() <= before.iter().filter(closed).count()
    }

    #[cold]
    fn misplaced(&mut self, at: usize) -> SyntaxError {
        self.is_final = true;
        self.misplaced = Some(at);
        self.at = at;
        self.mismatched(Tok::From.name())
    }

    #[inline(never)]
    fn subscript(&mut self, receiver: Selector) -> Result<Selector> {
        let receiver = Box::new(receiver);
        self.expect(Tok::BracketOpen)?;
        let from = if self.kind() == Tok::Range { None } else { Some(Box::new(self.term()?)) };
        let selector = match from {
            Some(key) if self.kind() != Tok::Range => Selector::Element { receiver, key },
            from => {
                self.expect(Tok::Range)?;
                let open = from.is_some() && self.kind() == Tok::BracketClose;
                let to = if open { None } else { Some(Box::new(self.term()?)) };
                Selector::Slice { receiver, from, to }
            }
        };
        self.expect(Tok::BracketClose)?;
        Ok(selector)
    }

    #[inline(never)]
    fn primary_selector(&mut self) -> Result<Selector> {
        let start = self.start();
        match self.kind() {
            Tok::Null => {
                self.bump();
                Ok(Selector::Null(self.span_from(start)))
            }
            // A keyspace cannot be bound; the lookup of its function reports that.
            Tok::Qmark if self.is_function_behind_keyspace(0) => self.function_selector(),
            Tok::Qmark | Tok::Colon => Ok(Selector::Bind(self.bind_marker()?)),
            Tok::ParenOpen => self.paren_selector(),
            Tok::BracketOpen => self.list_selector(),
            Tok::BraceOpen => self.brace_selector(),
            kind if is_constant(kind) => Ok(Selector::Literal(self.constant()?)),
            kind if !kind.is_name() && !kind.is_function_name() => Err(self.no_viable()),
            kind if self.kind_at(1) == Tok::ParenOpen => self.special_selector(kind),
            _ if self.is_function_at(0) => self.function_selector(),
            // The only name that is just a function's.
            Tok::TokenWord => {
                self.bump();
                Err(self.mismatched(Tok::ParenOpen.name()))
            }
            _ => Ok(Selector::Column(self.ident()?)),
        }
    }

    /// Parses a selector of the form `name(…)`.
    #[inline(never)]
    fn special_selector(&mut self, kind: Tok) -> Result<Selector> {
        let start = self.start();
        let metadata = match kind {
            Tok::Writetime => MetadataKind::WriteTime,
            Tok::Maxwritetime => MetadataKind::MaxWriteTime,
            Tok::Ttl => MetadataKind::Ttl,
            Tok::Cast => return self.cast_selector(),
            Tok::Count if self.kind_at(2) == Tok::Star => {
                self.expect_all(&[Tok::Count, Tok::ParenOpen, Tok::Star, Tok::ParenClose])?;
                return Ok(Selector::CountRows(self.span_from(start)));
            }
            // No function can have the name: the parenthesis does not fit.
            _ if !kind.is_function_name() => return Ok(Selector::Column(self.ident()?)),
            _ => return self.function_selector(),
        };
        self.expect_all(&[kind, Tok::ParenOpen])?;
        let mut target = Box::new(Selector::Column(self.ident()?));
        // Nothing else can stand here: an error in them is one.
        while matches!(self.kind(), Tok::Dot | Tok::BracketOpen) {
            target = Box::new(self.accessor(*target)?);
            self.count_operator()?;
        }
        self.expect(Tok::ParenClose)?;
        Ok(Selector::Metadata { kind: metadata, target, span: self.span_from(start) })
    }

    #[inline(never)]
    fn cast_selector(&mut self) -> Result<Selector> {
        let start = self.start();
        self.expect_all(&[Tok::Cast, Tok::ParenOpen])?;
        let selector = Box::new(self.selector()?);
        self.expect(Tok::As)?;
        let ty = self.native_type()?;
        self.expect(Tok::ParenClose)?;
        Ok(Selector::Cast { selector, ty, span: self.span_from(start) })
    }

    #[inline(never)]
    fn function_selector(&mut self) -> Result<Selector> {
        let start = self.start();
        let name = self.function_name()?;
        let args = self.paren_list_or_empty(Self::selector)?;
        Ok(Selector::FunctionCall { name, args, span: self.span_from(start) })
    }

    /// `(type) selector`, parentheses, or a tuple.
    #[inline(never)]
    fn paren_selector(&mut self) -> Result<Selector> {
        let start = self.start();
        let is_hint = match self.type_in_parens_at(0) {
            TypeAhead::No => false,
            TypeAhead::Yes => true,
            // A name in parentheses is a column too, unless something to be typed follows.
            TypeAhead::Name(next) | TypeAhead::String(next) => self.is_selector_at(next),
        };
        if !is_hint {
            let items = self.paren_list(Self::selector)?;
            return Ok(Selector::Tuple(items, self.span_from(start)));
        }
        let begins_at = self.place();
        let is_kept = self.hints >= HINTS_MAX;
        self.hints += 1;
        let hinted = self.hinted_selector();
        self.hints -= 1;
        match hinted {
            Ok((ty, selector)) if !is_looked_behind(&selector) || self.goes_on_behind_column() => {
                let selector = Box::new(selector);
                return Ok(Selector::TypeHint { ty, selector, span: self.span_from(start) });
            }
            Err(error) if is_kept || !self.is_given_up_for(&error) => return Err(error),
            Ok(_) | Err(_) => {}
        }
        // Cassandra's parser then treats the parentheses as a tuple.
        self.go_back(&begins_at);
        let items = self.paren_list(Self::selector)?;
        Ok(Selector::Tuple(items, self.span_from(start)))
    }

    fn hinted_selector(&mut self) -> Result<(RawType, Selector)> {
        self.expect(Tok::ParenOpen)?;
        let ty = self.raw_type()?;
        self.expect(Tok::ParenClose)?;
        Ok((ty, self.nested(Self::primary_selector)?))
    }

    /// Returns true if the parser may try another alternative after an error. It may not for a text
    /// that is no token, which ends the lookahead, for too deep nesting, or for the own error of a
    /// type or name that fits.
    fn is_given_up_for(&mut self, error: &SyntaxError) -> bool {
        let is_too_deep = self.is_final && self.misplaced.is_none();
        self.kind() != Tok::LexFailure && !is_too_deep && error.message.starts_with("line ")
    }

    #[inline(never)]
    fn list_selector(&mut self) -> Result<Selector> {
        let start = self.start();
        self.expect(Tok::BracketOpen)?;
        let items = match self.kind() {
            Tok::BracketClose => Vec::new(),
            _ => self.comma_list(Self::selector)?,
        };
        self.expect(Tok::BracketClose)?;
        Ok(Selector::List(items, self.span_from(start)))
    }

    /// Set, map or user type value.
    #[inline(never)]
    fn brace_selector(&mut self) -> Result<Selector> {
        let start = self.start();
        self.expect(Tok::BraceOpen)?;
        if self.eat(Tok::BraceClose) {
            return Ok(Selector::Set(Vec::new(), self.span_from(start)));
        }
        let first = self.selector()?;
        if self.eat(Tok::Colon) {
            let mut entries = vec![(first, self.selector()?)];
            while self.eat(Tok::Comma) {
                let key = self.selector()?;
                self.expect(Tok::Colon)?;
                entries.push((key, self.selector()?));
            }
            self.expect(Tok::BraceClose)?;
            return Ok(Selector::MapOrUdt(entries, self.span_from(start)));
        }
        let mut items = vec![first];
        while self.eat(Tok::Comma) {
            items.push(self.selector()?);
        }
        self.expect(Tok::BraceClose)?;
        Ok(Selector::Set(items, self.span_from(start)))
    }

    /// Returns true if a selection starts `ahead` tokens on.
    fn is_selection_at(&mut self, ahead: usize) -> bool {
        matches!(self.kind_at(ahead), Tok::Star | Tok::Minus) || self.is_selector_at(ahead)
    }

    /// Returns true if the current token may follow a selection that was read whole, as far as
    /// Cassandra's parser looks ahead. Source: the follow set of `selectorModifier`.
    fn ends_selection(&mut self, selection: &Selection) -> bool {
        let Selection::Items(items) = selection else { return true };
        let Some(SelectItem { selector, alias: None, .. }) = items.last() else { return true };
        let mut last = selector;
        loop {
            last = match last {
                Selector::Binary { right, .. } => right,
                Selector::Negate(of, _) => of,
                Selector::Field { receiver, .. } if is_looked_behind(receiver) => receiver,
                _ => break,
            };
        }
        !is_looked_behind(last) || self.ends_selector() || self.ends_group()
    }

    /// Returns true if the tokens after a column with a type hint may follow it, as far as
    /// Cassandra's parser looks ahead.
    fn goes_on_behind_column(&mut self) -> bool {
        let before = self.at;
        if self.kind() == Tok::Dot && self.kind_at(1).is_name() {
            if !self.kind_at(1).is_function_name() {
                return true;
            }
            self.at += 2;
        }
        let goes_on = match self.kind() {
            Tok::BracketOpen => true,
            Tok::Dot => self.at > before,
            _ => self.ends_selector() || self.ends_group(),
        };
        self.at = before;
        goes_on
    }

    /// Returns true if the current token may follow a selector.
    fn ends_selector(&mut self) -> bool {
        matches!(
            self.kind(),
            Tok::From
                | Tok::Comma
                | Tok::As
                | Tok::Plus
                | Tok::Minus
                | Tok::Star
                | Tok::Slash
                | Tok::Percent
                | Tok::Colon
                | Tok::ParenClose
                | Tok::BracketClose
                | Tok::BraceClose
                | Tok::LexFailure
        )
    }

    /// Returns true if the current token may follow a selector of GROUP BY.
    fn ends_group(&mut self) -> bool {
        let kind = self.kind();
        matches!(kind, Tok::Order | Tok::Per | Tok::Limit | Tok::Allow | Tok::Semicolon | Tok::Eof)
    }

    /// Returns true if a selector without sign starts `ahead` tokens on.
    fn is_selector_at(&mut self, ahead: usize) -> bool {
        match self.kind_at(ahead) {
            Tok::Null | Tok::Qmark | Tok::ParenOpen | Tok::BracketOpen | Tok::BraceOpen => true,
            Tok::Colon => self.kind_at(ahead + 1).is_name(),
            // An alias of the preceding selector, unless the token after `AS` may follow a column.
            Tok::As => match self.kind_at(ahead + 1) {
                Tok::As | Tok::Per => true,
                next => !next.is_name(),
            },
            Tok::Per => self.kind_at(ahead + 1) != Tok::Partition,
            kind => is_constant(kind) || kind.is_name() || self.is_function_at(ahead),
        }
    }

    /// `name (',' name)*` in parentheses.
    pub(super) fn column_tuple(&mut self) -> Result<Vec<Ident>> {
        self.paren_list(Self::column)
    }
}

#[inline(never)]
/// Returns true for a column, or a `?`: Cassandra's parser checks the token after it, which might
/// make a function of it.
fn is_looked_behind(selector: &Selector) -> bool {
    matches!(selector, Selector::Column(_))
        || matches!(selector, Selector::Bind(marker) if marker.name.is_none())
}

fn binary(op: ArithmeticOp, left: Selector, right: Selector) -> Selector {
    Selector::Binary { op, left: Box::new(left), right: Box::new(right) }
}
