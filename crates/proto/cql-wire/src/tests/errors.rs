//! Errors, also in the form that older clients get.

use super::responses::check_response;
use super::*;

pub(super) fn all_errors() -> Vec<ErrorBody<'static>> {
    let (consistency, received, block_for) = (Consistency::Quorum, 1, 2);
    let reasons = Failures::Reasons(vec![
        (IpAddr::V4(Ipv4Addr::LOCALHOST), FailureReason::Timeout),
        (IpAddr::V6(Ipv6Addr::LOCALHOST), FailureReason::ReadTooManyTombstones),
    ]);
    let mut all: Vec<ErrorBody<'static>> =
        ErrorCode::ALL.iter().filter_map(|code| ErrorBody::without_fields(*code)).collect();
    for write_type in WriteType::ALL {
        let contentions = (write_type == WriteType::Cas).then_some(3);
        all.push(ErrorBody::WriteTimeout {
            consistency,
            received,
            block_for,
            write_type,
            contentions,
        });
        let failures = reasons.clone();
        all.push(ErrorBody::WriteFailure {
            consistency,
            received,
            block_for,
            failures,
            write_type,
        });
    }
    all.push(ErrorBody::Unavailable { consistency, required: 2, alive: 1 });
    all.push(ErrorBody::ReadTimeout { consistency, received, block_for, data_present: true });
    all.push(ErrorBody::ReadFailure {
        consistency,
        received,
        block_for,
        failures: reasons,
        data_present: false,
    });
    let argument_types = vec!["int"];
    all.push(ErrorBody::FunctionFailure { keyspace: "ks", function: "f", argument_types });
    all.push(ErrorBody::CasWriteUnknown { consistency, received, block_for });
    all.push(ErrorBody::AlreadyExists { keyspace: "ks", table: "" });
    all.push(ErrorBody::Unprepared { id: &[9; 16] });
    all
}

#[test]
fn every_error_comes_back_in_v5() {
    let negotiated = Negotiated::plain(ProtocolVersion::V5);
    let mut codes: Vec<ErrorCode> = all_errors().iter().map(ErrorBody::code).collect();
    codes.dedup();
    for code in ErrorCode::ALL {
        assert!(codes.contains(code), "{code}");
    }
    for error in all_errors() {
        let expect = ResponseBody::Error { error: error.clone(), message: "m" };
        check_response(negotiated, Opcode::Error, &expect, |out| {
            response::put_error(out, negotiated.version, &error, "m")
        });
    }
}

#[test]
fn older_clients_are_told_newer_errors_as_cassandra_tells_them() {
    let told = |error: &ErrorBody<'_>, version| {
        let mut out = Vec::new();
        error.encode("m", version, &mut out).unwrap();
        let mut r = Reader::new(&out, "ERROR");
        let (body, message) = ErrorBody::decode(&mut r, version).unwrap();
        assert!(r.is_empty(), "{error:?}");
        (format!("{body:?}"), body.code(), message.to_owned())
    };
    let (consistency, received, block_for) = (Consistency::One, 0, 1);
    let write_type = WriteType::Cas;
    let cas = ErrorBody::WriteTimeout {
        consistency,
        received,
        block_for,
        write_type,
        contentions: Some(4),
    };
    let timeout =
        ErrorBody::WriteTimeout { consistency, received, block_for, write_type, contentions: None };
    assert_eq!(told(&cas, ProtocolVersion::V4).0, format!("{timeout:?}"));
    let unknown = ErrorBody::CasWriteUnknown { consistency, received, block_for };
    assert_eq!(told(&unknown, ProtocolVersion::V4).0, format!("{timeout:?}"));
    assert_eq!(
        told(&ErrorBody::CdcWriteFailure, ProtocolVersion::V4).1,
        ErrorCode::CdcWriteFailure
    );
    let (_, code, message) = told(&ErrorBody::CdcWriteFailure, ProtocolVersion::V3);
    assert_eq!((code, message.as_str()), (ErrorCode::Invalid, "ERROR CDC_WRITE_FAILURE: m"));
    let reasons = vec![(IpAddr::V4(Ipv4Addr::LOCALHOST), FailureReason::Unknown); 2];
    let failures = Failures::Reasons(reasons);
    let failure =
        ErrorBody::ReadFailure { consistency, received, block_for, failures, data_present: true };
    let failures = Failures::Count(2);
    let counted =
        ErrorBody::ReadFailure { consistency, received, block_for, failures, data_present: true };
    assert_eq!(told(&failure, ProtocolVersion::V4).0, format!("{counted:?}"));
    assert_eq!(told(&failure, ProtocolVersion::V3).1, ErrorCode::ReadTimeout);
    for error in all_errors() {
        for version in ProtocolVersion::ALL {
            told(&error, version);
        }
    }
}

#[test]
fn a_message_too_long_for_a_string_is_cut_at_a_character() {
    let long = format!("{}é", "x".repeat(65_534));
    let mut out = Vec::new();
    response::put_error(&mut out, ProtocolVersion::V4, &ErrorBody::Invalid, &long).unwrap();
    assert_eq!(out.len(), 4 + 2 + 65_534);
    out.clear();
    response::put_error(&mut out, ProtocolVersion::V4, &ErrorBody::Invalid, &long[1..]).unwrap();
    assert_eq!(out.len(), 4 + 2 + 65_535);
}
