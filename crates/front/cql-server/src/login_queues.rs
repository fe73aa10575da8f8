//! Queues of logins that wait for the end of others, see [`logins::Admission::Queued`].
//!
//! Owns: who is woken. Never: decides about a login (`logins::Slowdown`).
//!
//! INV-login-2: a login that ends wakes the first of each queue that waits for it, and with the right password all of
//! its role: they may be answered without a hash. A woken login that does not have to wait any more wakes the next, one
//! that has to wait goes back to the front. So the end of a login costs no more than the logins that it frees, and none
//! waits that need not.

use logins::{LoginQueue, Verdict};
use rt::sync::Notify;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use stdx::FixedMap;

/// The queues of a node; on shard 0.
#[derive(Default)]
pub(crate) struct LoginQueues {
    queues: RefCell<FixedMap<LoginQueue, VecDeque<Waiter>>>,
    next: Cell<u64>,
}

struct Waiter {
    number: u64,
    role: u64,
    woken: Notify,
}

/// A login in a queue, or one that was woken and is not decided yet. Dropped when it was woken, it wakes the next.
pub(crate) struct Queued<'a> {
    queues: &'a LoginQueues,
    queue: LoginQueue,
    number: u64,
    /// Notified once, when it is woken.
    pub(crate) woken: Notify,
    wakes_next: bool,
}

impl LoginQueues {
    /// Adds a login of a role; at the front if it was woken from the same queue.
    pub(crate) fn join<'a>(
        &'a self,
        queue: LoginQueue,
        role: u64,
        earlier: Option<Queued<'a>>,
    ) -> Queued<'a> {
        let number = self.next.get();
        self.next.set(number + 1);
        let woken = Notify::new();
        let waiter = Waiter { number, role, woken: woken.clone() };
        let goes_back = earlier.as_ref().is_some_and(|e| e.queue == queue && e.is_woken());
        {
            let mut queues = self.queues.borrow_mut();
            let waiting = queues.entry(queue).or_default();
            match goes_back {
                true => waiting.push_front(waiter),
                false => waiting.push_back(waiter),
            }
        }
        if let Some(mut earlier) = earlier {
            // Otherwise the others of the queue have to wait, too.
            earlier.wakes_next = !goes_back;
        }
        Queued { queues: self, queue, number, woken, wakes_next: true }
    }

    /// Wakes logins that may be decided now that one of a role has ended, for which these queues wait.
    pub(crate) fn ended(&self, queues: [LoginQueue; 2], role: u64, verdict: Verdict) {
        let [of_address, of_pair] = queues;
        if verdict == Verdict::Right {
            self.wake(of_address, |waiter| waiter.role == role);
        }
        self.wake_first(of_address);
        self.wake_first(of_pair);
    }

    fn wake_first(&self, queue: LoginQueue) {
        let mut is_first = true;
        self.wake(queue, |_| std::mem::take(&mut is_first));
    }

    fn wake(&self, queue: LoginQueue, mut chosen: impl FnMut(&Waiter) -> bool) {
        let mut woken = Vec::new();
        {
            let mut queues = self.queues.borrow_mut();
            let Some(waiting) = queues.get_mut(&queue) else { return };
            waiting.retain(|waiter| {
                let stays = !chosen(waiter);
                if !stays {
                    woken.push(waiter.woken.clone());
                }
                stays
            });
            if waiting.is_empty() {
                queues.remove(&queue);
            }
        }
        for waiter in woken {
            waiter.notify_one();
        }
    }

    /// Returns true if the login was in the queue.
    fn leave(&self, queue: LoginQueue, number: u64) -> bool {
        let mut queues = self.queues.borrow_mut();
        let Some(waiting) = queues.get_mut(&queue) else { return false };
        let before = waiting.len();
        waiting.retain(|waiter| waiter.number != number);
        let was_there = waiting.len() < before;
        if waiting.is_empty() {
            queues.remove(&queue);
        }
        was_there
    }
}

impl Queued<'_> {
    fn is_woken(&self) -> bool {
        let queues = self.queues.queues.borrow();
        let waiting = queues.get(&self.queue);
        !waiting.is_some_and(|waiting| waiting.iter().any(|w| w.number == self.number))
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        if !self.queues.leave(self.queue, self.number) && self.wakes_next {
            self.queues.wake_first(self.queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use logins::slowdown::{self, network, role_key};
    use logins::{Admission, Login, Slowdown};
    use std::net::IpAddr;
    use stdx::Instant;

    fn login(role: &str) -> Login {
        let address = IpAddr::from([10, 0, 0, 1]);
        match Slowdown::default().admit(Instant(0), address, role) {
            Admission::After(_, login) => login,
            other => panic!("{other:?}"),
        }
    }

    fn end(queues: &LoginQueues, login: &Login, verdict: Verdict) {
        queues.ended(login.queues(), login.role(), verdict);
    }

    fn woken(queued: &[&Queued<'_>]) -> Vec<bool> {
        queued.iter().map(|queued| queued.is_woken()).collect()
    }

    /// INV-login-2
    #[test]
    fn a_login_that_ends_wakes_one_and_each_that_is_decided_the_next() {
        let queues = LoginQueues::default();
        let of_address = LoginQueue::Address(network(IpAddr::from([10, 0, 0, 1])));
        let join = |role, earlier| queues.join(of_address, role_key(role), earlier);
        let (a, b, c) = (join("a", None), join("b", None), join("c", None));
        end(&queues, &login("x"), Verdict::Wrong);
        assert_eq!(woken(&[&a, &b, &c]), [true, false, false]);
        // It has to wait: it is the first again, and the others sleep on.
        let a = join("a", Some(a));
        assert_eq!(woken(&[&a, &b, &c]), [false, false, false]);
        end(&queues, &login("x"), Verdict::Unverified);
        assert_eq!(woken(&[&a, &b, &c]), [true, false, false]);
        // It is decided, or its client is gone.
        drop(a);
        assert_eq!(woken(&[&b, &c]), [true, false]);
        drop(b);
        assert_eq!(woken(&[&c]), [true]);
        drop(c);
        assert!(queues.queues.borrow().is_empty());
    }

    #[test]
    fn one_that_stops_waiting_by_itself_wakes_no_other() {
        let queues = LoginQueues::default();
        let of_address = LoginQueue::Address(network(IpAddr::from([10, 0, 0, 1])));
        let a = queues.join(of_address, 1, None);
        let b = queues.join(of_address, 2, None);
        drop(a);
        assert_eq!(woken(&[&b]), [false]);
        // It goes to the end of another queue.
        end(&queues, &login("x"), Verdict::Wrong);
        let b = queues.join(LoginQueue::Pair(1, 2), 2, Some(b));
        assert_eq!(woken(&[&b]), [false]);
    }

    #[test]
    fn the_right_password_wakes_all_of_its_role() {
        let queues = LoginQueues::default();
        let address = slowdown::network(IpAddr::from([10, 0, 0, 1]));
        let join = |queue, role| queues.join(queue, role_key(role), None);
        let of_address = LoginQueue::Address(address);
        let other = join(of_address, "other");
        let (a, b) = (join(of_address, "app"), join(of_address, "app"));
        let of_pair = join(LoginQueue::Pair(address, role_key("app")), "app");
        let last = join(of_address, "last");
        let elsewhere = join(LoginQueue::Address(address + 1), "app");
        end(&queues, &login("app"), Verdict::Right);
        let now = woken(&[&other, &a, &b, &of_pair, &last, &elsewhere]);
        assert_eq!(now, [true, true, true, true, false, false]);
    }
}
