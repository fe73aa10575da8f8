//! `system_views.system_logs`.

use super::*;

#[test]
fn the_newest_records_come_first_also_over_pages() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V5).await;
        let query = "SELECT level FROM system_views.system_logs";
        let newest_first = ["WARN", "ERROR", "INFO", "DEBUG"];
        assert_eq!(show(&client.must(query).await.rows()), newest_first);
        let mut state = None;
        let mut levels = Vec::new();
        loop {
            let parameters = QueryParameters {
                page_size: Some(1),
                paging_state: state.as_deref(),
                ..QueryParameters::new(Consistency::One)
            };
            let page = client.ask(&Request::Query { query, parameters }).await.rows();
            levels.extend(show(&page));
            state = page.paging_state;
            if state.is_none() {
                break;
            }
        }
        assert_eq!(levels, newest_first);
        let of_one = format!("{query} WHERE timestamp = 7 AND order_in_millisecond > 0");
        assert_eq!(show(&client.must(&of_one).await.rows()), ["INFO"]);
    });
}

#[test]
fn the_log_is_filtered_only_when_it_is_asked_for() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V5).await;
        let query = "SELECT level FROM system_views.system_logs WHERE level = 'INFO'";
        let (code, message) = client.query(query).await.error();
        assert_eq!(code, ErrorCode::Invalid);
        assert!(message.ends_with("use ALLOW FILTERING"), "{message}");
        let rows = client.must(&format!("{query} ALLOW FILTERING")).await.rows();
        assert_eq!(show(&rows), ["INFO"]);
        // Other virtual tables do not need ALLOW FILTERING.
        let query = "SELECT name FROM system_views.settings WHERE value = 'y'";
        assert!(client.must(query).await.rows().rows.is_empty());
    });
}

#[test]
fn the_log_can_be_truncated_and_other_virtual_tables_cannot() {
    run(|rt| async move {
        let server = node(&rt, settings(), &Meshes::new(1)).await;
        let mut client = Client::ready(&server, V5).await;
        let (code, message) = client.query("TRUNCATE system_views.settings").await.error();
        let expected = "Truncation is not supported by table system_views.settings";
        assert_eq!((code, message.as_str()), (ErrorCode::Invalid, expected));
        assert_eq!(client.must("TRUNCATE system_views.system_logs").await.body, Body::Void);
        let rows = client.must("SELECT level FROM system_views.system_logs").await.rows();
        assert!(rows.rows.is_empty());
    });
}
