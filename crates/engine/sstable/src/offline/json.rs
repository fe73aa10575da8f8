//! Just enough of a JSON writer to lay text out as sstabledump does: its pretty printer has two
//! indenters, for objects and for arrays, each of which is switched between new lines and spaces
//! while writing.

/// See the module. Calls must be balanced; nothing is checked.
#[derive(Debug, Default)]
pub(crate) struct Json {
    out: String,
    /// Entries so far of each open object or array.
    open: Vec<usize>,
    after_name: bool,
    pub(crate) compact_objects: bool,
    pub(crate) compact_arrays: bool,
    /// Only the characters that JSON needs.
    pub(crate) minimal: bool,
}

impl Json {
    /// Creates a writer of minimal JSON, or one that lays it out.
    pub(crate) fn new(minimal: bool) -> Json {
        Json { minimal, ..Json::default() }
    }

    /// Text written since the last call.
    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    fn indent(&mut self, compact: bool) {
        if self.minimal {
            return;
        }
        if compact {
            self.out.push(' ');
        } else {
            self.out.push('\n');
            for _ in 0..self.open.len() {
                self.out.push_str("  ");
            }
        }
    }

    fn before_value(&mut self) {
        if std::mem::take(&mut self.after_name) {
            return;
        }
        if let Some(count) = self.open.last_mut() {
            *count += 1;
            if *count > 1 {
                self.out.push(',');
            }
            self.indent(self.compact_arrays);
        }
    }

    pub(crate) fn start_array(&mut self) {
        self.before_value();
        self.out.push('[');
        self.open.push(0);
    }

    pub(crate) fn end_array(&mut self) {
        let count = self.open.pop().unwrap_or(0);
        if count > 0 {
            self.indent(self.compact_arrays)
        } else if !self.minimal {
            self.out.push(' ')
        }
        self.out.push(']');
    }

    pub(crate) fn start_object(&mut self) {
        self.before_value();
        self.out.push('{');
        self.open.push(0);
    }

    pub(crate) fn end_object(&mut self) {
        let count = self.open.pop().unwrap_or(0);
        if count > 0 {
            self.indent(self.compact_objects)
        } else if !self.minimal {
            self.out.push(' ')
        }
        self.out.push('}');
    }

    pub(crate) fn name(&mut self, name: &str) {
        if let Some(count) = self.open.last_mut() {
            *count += 1;
            if *count > 1 {
                self.out.push(',');
            }
        }
        self.indent(self.compact_objects);
        types::format::push_json_string(&mut self.out, name);
        self.out.push_str(if self.minimal { ":" } else { " : " });
        self.after_name = true;
    }

    pub(crate) fn string(&mut self, text: &str) {
        self.before_value();
        types::format::push_json_string(&mut self.out, text);
    }

    pub(crate) fn raw(&mut self, text: &str) {
        self.before_value();
        self.out.push_str(text);
    }

    pub(crate) fn field(&mut self, name: &str, raw: &str) {
        self.name(name);
        self.raw(raw);
    }
}
