//! Names of MBeans, which permissions are given on.
//!
//! Source: Cassandra's `canonicalizeObjectName` and Java's `javax.management.ObjectName`.

use super::{Parser, Result};

impl Parser<'_> {
    /// The name after MBEAN, or after MBEANS, which must be a pattern.
    pub(super) fn mbean_name(&mut self, plural: bool) -> Result<String> {
        let name = self.string()?;
        let wrong = match is_pattern(&name) {
            _ if name.is_empty() => "Empty JMX object name supplied".to_owned(),
            _ if name == "*:*" => "Please use ALL MBEANS instead of wildcard pattern".to_owned(),
            None => format!("{name} is not a valid JMX object name"),
            Some(false) if plural => {
                format!("Plural form used, but non-pattern JMX object name specified ({name})")
            }
            Some(_) => return Ok(name),
        };
        Err(self.refuse(wrong))
    }
}

fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Returns true if `domain:key=value,…` stands for several names; `None`: it is no name.
fn is_pattern(name: &str) -> Option<bool> {
    let (domain, mut rest) = name.split_once(':')?;
    if name.contains('\n') || rest.is_empty() {
        return None;
    }
    let mut pattern = has_wildcard(domain);
    let (mut keys, mut any) = (Vec::new(), false);
    loop {
        if let Some(behind) = rest.strip_prefix('*')
            && (behind.is_empty() || behind.starts_with(','))
        {
            if any {
                return None;
            }
            (any, pattern, rest) = (true, true, behind);
        } else {
            let (key, value) = rest.split_once('=')?;
            if key.is_empty() || key.contains([',', ':', '*', '?']) || keys.contains(&key) {
                return None;
            }
            keys.push(key);
            let (wildcard, behind) = value_of(value)?;
            pattern |= wildcard;
            rest = behind;
        }
        match rest.strip_prefix(',') {
            Some(next) if !next.is_empty() => rest = next,
            Some(_) => return None,
            None if rest.is_empty() => return Some(pattern),
            None => return None,
        }
    }
}

/// Returns true if the first value has wildcards, and the text after the value.
fn value_of(text: &str) -> Option<(bool, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(',').unwrap_or(text.len());
        let (value, behind) = text.split_at_checked(end)?;
        return (!value.contains(['=', ':', '"'])).then(|| (has_wildcard(value), behind));
    };
    let mut wildcard = false;
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next()?.1 {
                '\\' | '"' | '*' | '?' | 'n' => {}
                _ => return None,
            },
            '"' => return Some((wildcard, quoted.get(at.checked_add(1)?..)?)),
            '*' | '?' => wildcard = true,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::is_pattern;

    #[test]
    fn names_patterns_and_what_is_neither() {
        for name in ["a:b=c", "org.x:type=T,name=", "d:a=\"x,\\*\",b=1"] {
            assert_eq!(is_pattern(name), Some(false), "{name}");
        }
        for pattern in ["a*:b=c", "a:*", "a:b=*", "a:b=c,*", "a:*,b=c", "a:b=\"x*\""] {
            assert_eq!(is_pattern(pattern), Some(true), "{pattern}");
        }
        for wrong in
            ["x", "a:", "a:b", "a:b=c,", "a:=c", "a:b=c,b=d", "a:b=c:d", "a:b=\"c", "a:*,*"]
        {
            assert_eq!(is_pattern(wrong), None, "{wrong}");
        }
    }
}
