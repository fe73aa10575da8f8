//! The registry of verbs: the function that serves each request of a peer.
//!
//! A function is found by a walk over the entries in the order of their registration: the most frequent verbs come
//! first.
//!
//! INV-verbs-1: a verb is served by one function.

use internode::Verb;
use messaging::{Request, Responder};

/// Serves a request of a peer with what `S` holds. Must answer through the responder.
pub type VerbHandler<S> = fn(&S, Request<'_>, Responder);

/// The verbs that a shard serves.
pub struct VerbRegistry<S: 'static> {
    handlers: Vec<(Verb, VerbHandler<S>)>,
}

impl<S> Default for VerbRegistry<S> {
    fn default() -> VerbRegistry<S> {
        VerbRegistry { handlers: Vec::new() }
    }
}

impl<S> VerbRegistry<S> {
    /// Registers these verbs, each with one function (INV-verbs-1).
    pub fn register(&mut self, handlers: &[(Verb, VerbHandler<S>)]) {
        for (verb, handler) in handlers {
            stdx::invariant!(
                self.find(*verb).is_none(),
                "INV-verbs-1: two functions serve the verb {verb:?}"
            );
            self.handlers.push((*verb, *handler));
        }
    }

    /// The function for a verb; `None`: it is not served here.
    #[inline]
    pub fn find(&self, verb: Verb) -> Option<VerbHandler<S>> {
        self.handlers.iter().find(|(served, _)| *served == verb).map(|(_, handler)| *handler)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_is_found_when_it_is_registered_and_only_then() {
        let mut registry: VerbRegistry<()> = VerbRegistry::default();
        registry.register(&[(Verb::Read, |(), _, responder| responder.respond(|_| {}))]);
        assert!(registry.find(Verb::Read).is_some());
        assert!(registry.find(Verb::Mutation).is_none());
    }
}
