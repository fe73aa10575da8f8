//! Statements for the server and their results.
//!
//! Owns: parameters of a statement (levels, page size, tracing), pages and their prompts, the
//! printed table or JSON, counts, warnings. Never: shell commands.
//!
//! Source: `perform_statement` and `print_result` of cqlsh 6.2.

use cql_wire::{QueryParameters, Request};

use crate::connection::{Answer, Page, Reply};
use crate::display::{self, CYAN, MAGENTA, RED, WHITE};
use crate::failure::Failure;
use crate::input::Line;
use crate::lex::{self, Token};
use crate::schema::Role;
use crate::shell::Shell;
use crate::trace;

/// How the rows of a statement are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A table with its count of rows.
    Counted,
    /// Conditions of a write: a table without a count, and nothing without rows.
    Applied,
}

impl Shell {
    /// Runs one statement or shell command.
    pub(crate) fn handle(&mut self, tokens: &[Token], source: &str) {
        let word = tokens.first().map_or("", |token| token.text(source)).to_lowercase();
        let text = lex::original(tokens, source).to_owned();
        match word.as_str() {
            "select" => self.select(tokens, source, &text),
            "use" => self.use_statement(tokens, source, &text),
            _ => {
                if !self.command(&word, tokens, source) {
                    self.perform(&text);
                }
            }
        }
        self.flush();
    }

    /// Reading traces is not traced.
    fn select(&mut self, tokens: &[Token], source: &str, text: &str) {
        let words: Vec<&str> = tokens.iter().map(|token| token.text(source)).collect();
        let from = words.iter().position(|word| word.eq_ignore_ascii_case("from"));
        let name = |offset: usize| from.and_then(|at| words.get(at + offset)).copied();
        let keyspace = match name(2) {
            Some(".") => name(1).map(lex::unquote_name),
            _ => self.keyspace.clone(),
        };
        let was = self.tracing;
        self.tracing = was && keyspace.as_deref() != Some("system_traces");
        self.perform(text);
        self.tracing = was;
    }

    fn use_statement(&mut self, tokens: &[Token], source: &str, text: &str) {
        let name = match tokens {
            [_, name, end] if end.kind == lex::Kind::End && lex::is_name(name, source) => name,
            _ => {
                let word = tokens.first().map_or("", |token| token.text(source));
                return self.print_error(&format!("Improper {word} command."));
            }
        };
        if self.perform(text) {
            self.keyspace = Some(lex::unquote_name(name.text(source)));
            if self.tty {
                self.refresh_names();
            }
        }
    }

    /// Sends a statement and prints the answer. Returns true on success.
    pub(crate) fn perform(&mut self, text: &str) -> bool {
        let mut traces = Vec::new();
        let reply = match self.send(text, None, &mut traces) {
            Ok(reply) => reply,
            Err(failure) => {
                self.print_failure(&failure);
                return false;
            }
        };
        let mut warnings = reply.warnings;
        match reply.answer {
            Answer::Rows(page) => {
                let lower = text.get(..10).unwrap_or(text).to_lowercase();
                let shape = match lower.starts_with("select") || lower.starts_with("list") {
                    true => Shape::Counted,
                    false => Shape::Applied,
                };
                self.print_rows(text, page, shape, &mut warnings, &mut traces);
            }
            Answer::SchemaChange => self.schema_changed(),
            Answer::SetKeyspace
            | Answer::Void
            | Answer::Prepared(_)
            | Answer::Authenticate
            | Answer::AuthChallenge
            | Answer::Supported(_) => {}
        }
        self.flush();
        self.print_warnings(&warnings);
        for id in traces {
            trace::print(self, &id, true);
        }
        true
    }

    fn schema_changed(&mut self) {
        self.tables.clear();
        if self.tty {
            self.refresh_names();
        }
    }

    /// Returns the page size; `None`: all rows at once.
    pub(crate) fn page_rows(&self) -> Option<i32> {
        Some(self.page_size).filter(|rows| self.paging && *rows > 0)
    }

    /// A request for the first page or a later one.
    pub(crate) fn send(
        &mut self,
        query: &str,
        paging_state: Option<&[u8]>,
        traces: &mut Vec<[u8; 16]>,
    ) -> Result<Reply, Failure> {
        let parameters = QueryParameters {
            page_size: self.page_rows(),
            paging_state,
            serial_consistency: Some(self.serial_consistency),
            ..QueryParameters::new(self.consistency)
        };
        let request = Request::Query { query, parameters };
        let timeout = self.options.request_timeout;
        let reply = self.connection.request(&request, self.tracing, timeout)?;
        traces.extend(reply.trace);
        Ok(reply)
    }

    /// An error of a statement; with one host, what would go to the next one ends here.
    pub(crate) fn print_failure(&mut self, failure: &Failure) {
        if failure.is_interrupt() {
            return;
        }
        let text = match failure.tries_next_host() {
            true => format!(
                "NoHostAvailable: ('Unable to complete the operation against any hosts', {{<Host: \
                 {} {}>: {}}})",
                self.target.name(),
                self.server.data_center,
                failure.repr()
            ),
            false => failure.to_string(),
        };
        self.print_error(&text);
    }

    fn print_rows(
        &mut self,
        query: &str,
        first: Page,
        shape: Shape,
        warnings: &mut Vec<String>,
        traces: &mut Vec<[u8; 16]>,
    ) {
        if self.json {
            return self.print_json(query, first, warnings, traces);
        }
        if shape == Shape::Applied {
            if first.len() > 0 {
                self.write_line("");
                self.print_page(&first, true, 0);
            }
            return;
        }
        self.write_line("");
        let mut page = first;
        let mut count = 0;
        let mut is_first = true;
        loop {
            if page.len() > 0 || is_first {
                self.print_page(&page, is_first || self.tty, count);
                count += page.len();
            }
            if page.paging_state.is_none() {
                break;
            }
            if self.tty && !self.is_capturing() {
                self.flush();
                match self.input.pause("---MORE---") {
                    Line::Text(_) => {}
                    Line::End => return self.print_error("EOF when reading a line"),
                    Line::Interrupted | Line::Broken(_) => return,
                }
            }
            match self.next_page(query, &page, warnings, traces) {
                Some(next) => page = next,
                None => return,
            }
            is_first = false;
        }
        if !self.tty {
            self.write_line("");
        }
        self.write_line(&format!("({count} rows)"));
    }

    fn next_page(
        &mut self,
        query: &str,
        page: &Page,
        warnings: &mut Vec<String>,
        traces: &mut Vec<[u8; 16]>,
    ) -> Option<Page> {
        match self.send(query, page.paging_state.as_deref(), traces) {
            Ok(Reply { answer: Answer::Rows(next), warnings: of_page, .. }) => {
                // cqlsh knows those of the last page only.
                *warnings = of_page;
                Some(next)
            }
            Ok(_) => None,
            Err(failure) => {
                self.print_failure(&failure);
                None
            }
        }
    }

    fn print_page(&mut self, page: &Page, header: bool, rows_before: usize) {
        if page.columns.is_empty() {
            return;
        }
        let names: Vec<display::Cell> = page
            .columns
            .iter()
            .map(|column| {
                let color = self.column_color(&column.keyspace, &column.table, &column.name);
                self.style.name(&column.name, color)
            })
            .collect();
        let color = self.style.color;
        if page.len() == 0 {
            self.write(&display::table(&names, &[], true, color));
            return self.write_line("");
        }
        let rows: Vec<Vec<display::Cell>> = (0..page.len())
            .map(|row| {
                let cells = page.columns.iter().enumerate();
                cells
                    .map(|(at, column)| self.style.cell(&column.kind, page.value(row, at)))
                    .collect()
            })
            .collect();
        if self.expand {
            return self.write(&display::expanded(&names, &rows, rows_before + 1, color));
        }
        self.write(&display::table(&names, &rows, header, color));
        if self.tty {
            self.write_line("");
        }
    }

    fn column_color(&mut self, keyspace: &str, table: &str, name: &str) -> &'static str {
        if !self.style.color {
            return MAGENTA;
        }
        let role = self.table(keyspace, table).and_then(|table| table.column(name)).map(|c| c.role);
        match role {
            Some(Role::Partition) => RED,
            Some(Role::Clustering) => CYAN,
            Some(Role::Static) => WHITE,
            Some(Role::Regular) | None => MAGENTA,
        }
    }

    /// One object per row and line, values in the server's JSON.
    fn print_json(
        &mut self,
        query: &str,
        first: Page,
        warnings: &mut Vec<String>,
        traces: &mut Vec<[u8; 16]>,
    ) {
        let mut page = first;
        loop {
            for row in 0..page.len() {
                let mut line = String::from("{");
                for (at, column) in page.columns.iter().enumerate() {
                    if at > 0 {
                        line.push_str(", ");
                    }
                    types::format::push_json_string(&mut line, &column.name);
                    line.push_str(": ");
                    match page.value(row, at) {
                        Some(value) => line.push_str(&column.kind.to_json(value)),
                        None => line.push_str("null"),
                    }
                }
                line.push('}');
                self.write_line(&line);
            }
            if page.paging_state.is_none() {
                return;
            }
            match self.next_page(query, &page, warnings, traces) {
                Some(next) => page = next,
                None => return,
            }
        }
    }

    /// Prints the server's warnings after a result.
    pub(crate) fn print_warnings(&mut self, warnings: &[String]) {
        if warnings.is_empty() {
            return;
        }
        self.write_line("");
        self.write_line("Warnings :");
        for warning in warnings {
            self.write_line(warning);
            self.write_line("");
        }
    }
}
