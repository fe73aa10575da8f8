//! Numbers as Java reads and prints them, where error texts or accepted forms depend on it.

/// `Integer.parseInt`.
pub fn int(text: &str) -> Option<i32> {
    text.parse().ok()
}

/// `Long.parseLong`.
pub fn long(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// `Double.parseDouble`: spaces around and a suffix are allowed, infinity and NaN by their full
/// names only.
pub fn double(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    match digits {
        "NaN" => return Some(f64::NAN),
        "Infinity" if text.starts_with('-') => return Some(f64::NEG_INFINITY),
        "Infinity" => return Some(f64::INFINITY),
        _ => {}
    }
    let text = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    // Rust also reads "inf" and "nan" in any case, Java does not.
    let plain = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
    if text.bytes().all(plain) { text.parse().ok() } else { None }
}

/// `String.valueOf(double)` for the sizes that occur here.
pub fn print_double(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "Infinity".into() } else { "-Infinity".into() };
    }
    let magnitude = value.abs();
    if value != 0.0 && !(1e-3..1e7).contains(&magnitude) && !value.is_nan() {
        let text = format!("{value:E}");
        return match text.split_once('E') {
            Some((mantissa, exponent)) if !mantissa.contains('.') => {
                format!("{mantissa}.0E{exponent}")
            }
            Some(_) | None => text,
        };
    }
    format!("{value:?}")
}

/// `FBUtilities.parseHumanReadableBytes`: `100MiB`, `1.5 GiB`, `0B`, `2*2^10 B`.
///
/// # Errors
/// The message of Java's exception; `null` where it has none.
pub fn bytes(text: &str) -> Result<i64, String> {
    let Some(datum) = text.strip_suffix('B') else {
        return Err(format!("{text} does not end in unit B"));
    };
    let (mut value, has_exponent, mut rest) = base_number(datum).ok_or("null")?;
    if !has_exponent && let Some(after) = rest.strip_prefix("*2^") {
        let digits = sign_and_digits(after);
        if let Some((power, tail)) = after.split_at_checked(digits)
            && digits > 0
            && let Ok(power) = power.parse::<i32>()
        {
            value *= 2_f64.powi(power);
            rest = tail;
        }
    }
    rest = rest.trim_start();
    if let Some(prefix) = rest.chars().next()
        && let Some(index) = "qryzafpnum KMGTPEZYRQ".chars().position(|c| c == prefix)
    {
        let power = i32::try_from(index).unwrap_or(0) - 10;
        rest = rest.get(prefix.len_utf8()..).unwrap_or("");
        match rest.strip_prefix('i') {
            Some(tail) => {
                rest = tail;
                value *= 2_f64.powi(power * 10);
            }
            None => value *= (1000_f64.ln() * f64::from(power)).exp(),
        }
    }
    if rest.is_empty() {
        // Java's cast from double to long saturates, as does Rust's.
        Ok(value as i64)
    } else {
        let end = datum.len();
        let at = end - rest.len();
        Err(format!("Unexpected characters between pos {at} and {end} in {text}"))
    }
}

/// Returns the leading number, true if it has an exponent, and the rest.
fn base_number(text: &str) -> Option<(f64, bool, &str)> {
    for (name, value) in [
        ("NaN", f64::NAN),
        ("Infinity", f64::INFINITY),
        ("+Infinity", f64::INFINITY),
        ("-Infinity", f64::NEG_INFINITY),
    ] {
        if let Some(rest) = text.strip_prefix(name) {
            return Some((value, false, rest));
        }
    }
    let mut end = sign_and_digits(text);
    if end == 0 {
        return None;
    }
    let more = |from: usize| text.get(from..).unwrap_or("");
    let mut has_exponent = false;
    if let Some(fraction) = more(end).strip_prefix('.') {
        let digits = leading_digits(fraction);
        if digits > 0 {
            end += 1 + digits;
        }
    }
    if more(end).starts_with(['e', 'E']) {
        let digits = sign_and_digits(more(end + 1));
        if digits > 0 {
            end += 1 + digits;
            has_exponent = true;
        }
    }
    let (number, rest) = text.split_at_checked(end)?;
    Some((number.parse().ok()?, has_exponent, rest))
}

fn leading_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Length of an optional sign and at least one digit, else 0.
fn sign_and_digits(text: &str) -> usize {
    let sign = usize::from(text.starts_with(['+', '-']));
    match leading_digits(text.get(sign..).unwrap_or("")) {
        0 => 0,
        digits => sign + digits,
    }
}

/// `FBUtilities.prettyPrintMemory`: `1.000MiB`.
pub fn print_memory(bytes: i64) -> String {
    let index = (63_u32.saturating_sub(bytes.unsigned_abs().leading_zeros())) / 10;
    if index == 0 {
        return format!("{bytes}B");
    }
    let prefix = b" KMGTPE".get(index as usize).copied().unwrap_or(b'E');
    format!("{:.3}{}iB", bytes as f64 / 2_f64.powi(index as i32 * 10), char::from(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, value) in [
            ("100MiB", Ok(100 << 20)),
            ("1 GiB", Ok(1 << 30)),
            ("0B", Ok(0)),
            ("1.5KiB", Ok(1536)),
            ("2*2^10B", Ok(2048)),
            ("1e3B", Ok(1000)),
            ("2KB", Ok(2000)),
            ("abc", Err("abc does not end in unit B".to_owned())),
            ("B", Err("null".to_owned())),
            ("1xB", Err("Unexpected characters between pos 1 and 2 in 1xB".to_owned())),
        ] {
            let read = bytes(text);
            let close = match (&read, &value) {
                // Java computes powers of 1000 through logarithms, too.
                (Ok(a), Ok(b)) => (a - b).abs() <= 1,
                (a, b) => a == b,
            };
            assert!(close, "{text}: {read:?}");
        }
    }

    #[test]
    fn doubles_are_those_java_accepts() {
        for (text, accepted) in [
            ("1.5", true),
            (" 1e3f ", true),
            ("NaN", true),
            ("nan", false),
            ("inf", false),
            ("", false),
        ] {
            assert_eq!(double(text).is_some(), accepted, "{text}");
        }
        assert_eq!(print_double(1.5), "1.5");
        assert_eq!(print_double(2.0), "2.0");
        assert_eq!(print_double(1e8), "1.0E8");
        assert_eq!(print_memory(1 << 20), "1.000MiB");
        assert_eq!(print_memory(5), "5B");
        assert_eq!(print_memory(0), "0B");
    }
}
