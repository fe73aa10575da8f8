//! A row in the tables of routes.

use axum::routing::MethodRouter;

use super::api::Api;
use crate::operation::{Class, CommandRow, Method, Scope};

/// Protection of a route from pages in a browser, and the bodies that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Commands have a body of JSON, which a page cannot send without being asked first.
    Json,
    /// Commands come without such a body: one with an `Origin`, which every browser sends with them, is refused.
    NoBrowsers,
    /// Like `Json`, with a body of bytes that may be large.
    Bytes,
}

/// One request that the API answers: everything that differs from request to request.
#[derive(Clone, Copy)]
pub struct Route {
    /// Method.
    pub method: Method,
    /// Path, with `{names}` of its variable parts.
    pub path: &'static str,
    /// Other paths with the same answer.
    pub also: &'static [&'static str],
    /// Permission class that it needs; the highest of its commands.
    pub class: Class,
    /// Scope of execution; the widest of its commands.
    pub scope: Scope,
    /// Parameters and effect, for the list of `GET /`; lines after the first are continued there.
    pub help: &'static str,
    /// The commands of a path that takes several.
    pub commands: &'static [CommandRow],
    guard: Guard,
    handler: fn() -> MethodRouter<Api>,
}

impl Route {
    pub(super) const fn new(
        method: Method,
        path: &'static str,
        class: Class,
        scope: Scope,
        handler: fn() -> MethodRouter<Api>,
    ) -> Route {
        Route {
            method,
            path,
            also: &[],
            class,
            scope,
            help: "",
            commands: &[],
            guard: Guard::Json,
            handler,
        }
    }

    pub(super) const fn help(mut self, help: &'static str) -> Route {
        self.help = help;
        self
    }

    pub(super) const fn also(mut self, paths: &'static [&'static str]) -> Route {
        self.also = paths;
        self
    }

    pub(super) const fn commands(mut self, rows: &'static [CommandRow]) -> Route {
        self.commands = rows;
        self
    }

    pub(super) const fn no_browsers(mut self) -> Route {
        self.guard = Guard::NoBrowsers;
        self
    }

    pub(super) const fn bytes(mut self) -> Route {
        self.guard = Guard::Bytes;
        self
    }

    /// Returns its protection from browsers.
    pub const fn guard(&self) -> Guard {
        self.guard
    }

    /// Its path and the other ones.
    pub fn paths(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.path).chain(self.also.iter().copied())
    }

    pub(super) fn handler(&self) -> MethodRouter<Api> {
        (self.handler)()
    }
}
