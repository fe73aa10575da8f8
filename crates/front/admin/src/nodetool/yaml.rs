//! YAML as SnakeYAML writes maps, lists and scalars in block style.

use std::fmt::Write;

use serde_json::Value;

use super::format::java_double;

/// Converts a command's output of `-F json` to its output of `-F yaml`.
pub fn yaml_of_json(json: &str) -> String {
    let value = serde_json::from_str(json).unwrap_or_default();
    // SnakeYAML ends its text with a line, and the tool with another one.
    block(&value, &[]) + "\n"
}

/// A document that is a map. Under keys of `doubles` the text `NaN` is a number.
pub(super) fn block(value: &Value, doubles: &[&str]) -> String {
    let mut out = String::new();
    put(&mut out, value, 0, doubles);
    out
}

fn put(out: &mut String, value: &Value, depth: usize, doubles: &[&str]) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let _ = write!(out, "{indent}{}:", text(key));
                match value {
                    Value::Object(inner) if !inner.is_empty() => {
                        out.push('\n');
                        put(out, value, depth + 1, doubles);
                    }
                    // Entries of a list are printed below its key, not after it.
                    Value::Array(inner) if !inner.is_empty() => {
                        out.push('\n');
                        put(out, value, depth, doubles);
                    }
                    Value::String(nan) if nan == "NaN" && doubles.contains(&key.as_str()) => {
                        out.push_str(" .NaN\n");
                    }
                    scalar => {
                        let _ = writeln!(out, " {}", flat(scalar));
                    }
                }
            }
        }
        Value::Array(all) => {
            for value in all {
                match value {
                    Value::Object(inner) if !inner.is_empty() => {
                        let mut of_map = String::new();
                        put(&mut of_map, value, depth + 1, doubles);
                        let first = of_map.get(indent.len() + 2..).unwrap_or_default();
                        let _ = write!(out, "{indent}- {first}");
                    }
                    flat_value => {
                        let _ = writeln!(out, "{indent}- {}", flat(flat_value));
                    }
                }
            }
        }
        scalar => {
            let _ = writeln!(out, "{indent}{}", flat(scalar));
        }
    }
}

fn flat(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(is) => is.to_string(),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(double) => java_double(double),
            None => number.to_string(),
        },
        Value::String(string) => text(string),
        Value::Array(_) => "[]".to_owned(),
        Value::Object(_) => "{}".to_owned(),
    }
}

/// Quoted when it would be read as something else than text.
fn text(string: &str) -> String {
    let words = ["", "null", "true", "false", "yes", "no", "on", "off", "~"];
    let is_number = string.parse::<f64>().is_ok_and(|n| n.is_finite());
    let is_word = words.contains(&string.to_lowercase().as_str());
    let is_plain = string.chars().all(|c| c.is_alphanumeric() || " ._-+/".contains(c))
        && !string.starts_with([' ', '-'])
        && !string.ends_with(' ');
    match is_plain && !is_number && !is_word {
        true => string.to_owned(),
        false => format!("'{}'", string.replace('\'', "''")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn maps_lists_and_scalars_are_snakeyamls() {
        let value = json!({
            "a": {"count": 7, "ratio": 2.0, "size": "5098", "shown": "4.98 KiB", "none": null},
            "b": {"empty": [], "also": {}, "levels": ["1", "2/4"]},
            "latency": "NaN", "word": "NaN", "flag": true,
        });
        let expected = "\
a:
  count: 7
  none: null
  ratio: 2.0
  shown: 4.98 KiB
  size: '5098'
b:
  also: {}
  empty: []
  levels:
  - '1'
  - 2/4
flag: true
latency: .NaN
word: NaN
";
        assert_eq!(block(&value, &["latency"]), expected);
        let maps = r#"{"all": [{"id": "1", "of": {"n": 2}}, {"id": "b:c"}], "paths": ["/a-b/c"]}"#;
        let expected = "all:\n- id: '1'\n  of:\n    n: 2\n- id: 'b:c'\npaths:\n- /a-b/c\n\n";
        assert_eq!(yaml_of_json(maps), expected);
    }
}
