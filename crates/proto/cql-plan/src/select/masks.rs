//! Which masked columns a SELECT asks by: who may not see them may not tell them by asking.
//!
//! Source: `SelectStatement.authorize`.

use super::SelectPlan;
use crate::describe::java_slot;

impl SelectPlan {
    /// Names of the masked columns that the WHERE clause is about, in the order of Cassandra's map of
    /// columns, because a message lists them.
    pub(crate) fn restricted_masked_columns(&self) -> Vec<&str> {
        let table = &*self.table;
        if table.masks.is_empty() {
            return Vec::new();
        }
        let r = &self.restrictions;
        let by_token = r.token.is_some();
        let is_restricted = |index: usize| {
            let mut all = r.partition.iter().chain(&r.clustering).chain(&r.other);
            (by_token && index < table.partition_key_count)
                || all.any(|r| (r.first..r.first + r.count).contains(&index))
        };
        let columns = table.columns.iter().enumerate();
        let masked = columns.filter(|(i, c)| table.mask_of(c).is_some() && is_restricted(*i));
        let mut names: Vec<&str> = masked.map(|(_, c)| &*c.name).collect();
        // It doubles when three quarters are taken.
        let mut slots = 16_usize;
        while table.columns.len() > slots / 4 * 3 {
            slots = slots.saturating_mul(2);
        }
        names.sort_by_key(|name| java_slot(name, slots));
        names
    }
}
