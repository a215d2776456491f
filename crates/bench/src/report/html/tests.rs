//! The page is well-formed, complete, and no foreign text is more than text.

use super::*;
use crate::report::example;
use crate::summary::{ClassFigures, Level};

const HOSTILE: &str =
    "</title><script>alert('x')</script>\"><img src=x onerror=alert(1)>&\u{202e}\u{0}\u{1b}[2J";

fn parsed(page: &str) -> roxmltree::Document<'_> {
    let page = page
        .strip_prefix("<!DOCTYPE html>\n")
        .expect("an HTML page");
    roxmltree::Document::parse(page).expect("well-formed")
}

fn texts<'a>(document: &'a roxmltree::Document<'_>, name: &str) -> Vec<&'a str> {
    document
        .descendants()
        .filter(|node| node.tag_name().name() == name)
        .filter_map(|node| node.text())
        .collect()
}

#[test]
fn the_page_is_well_formed_and_has_every_chart() {
    let page = html(&example::summary(), &example::series());
    // A browser looks at it next: `tests/client/test_report.py`.
    if let Some(path) = std::env::var_os("FULCRUM_REPORT") {
        std::fs::write(path, &page).expect("the report can be written");
    }
    let document = parsed(&page);
    let titles = texts(&document, "h2");
    assert_eq!(
        titles,
        [
            "Levels",
            "By load",
            "Distributions",
            "Over the run",
            "By class",
            "The server's own metrics",
            "All figures",
            "Failures",
            "What the figures mean",
            "How it was measured"
        ]
    );
    let num_charts = document
        .descendants()
        .filter(|node| node.tag_name().name() == "svg")
        .count();
    assert_eq!(num_charts, 4 + 2 + 3 + 4 + 1);
    let is_named = |node: roxmltree::Node<'_, '_>| {
        node.attribute("aria-label")
            .is_some_and(|name| !name.is_empty())
    };
    assert!(
        document
            .descendants()
            .filter(|node| node.tag_name().name() == "svg")
            .all(is_named)
    );
}

#[test]
fn the_page_loads_nothing_and_runs_nothing() {
    let page = html(&example::summary(), &example::series());
    let document = parsed(&page);
    for node in document.descendants().filter(|node| node.is_element()) {
        let name = node.tag_name().name();
        assert!(
            ![
                "script", "link", "img", "iframe", "object", "embed", "base", "form", "a"
            ]
            .contains(&name),
            "{name}"
        );
        for attribute in node.attributes() {
            let name = attribute.name();
            assert!(
                !name.starts_with("on") && !["src", "href"].contains(&name),
                "{name}"
            );
        }
    }
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
}

#[test]
fn a_foreign_text_is_text_wherever_it_stands() {
    let mut summary = example::summary();
    let hostile = || HOSTILE.to_owned();
    summary.endpoint = hostile();
    summary.model = Some(hostile());
    summary.api = hostile();
    summary.protocol = hostile();
    summary.fulcrum = hostile();
    summary.started = hostile();
    summary.command = vec![hostile()];
    summary.workload.name = hostile();
    summary.workload.hash = hostile();
    summary.workload.prompt_tokens_from = hostile();
    for level in &mut summary.levels {
        level.token_source = hostile();
        level.flags = vec![hostile()];
        level.errors = vec![(hostile(), 3)];
        let class = ClassFigures {
            slo: hostile(),
            ..level.classes["batch"].clone()
        };
        level.classes.insert(hostile(), class);
    }
    summary.server_metrics[0].name = hostile();
    summary.warnings[0].code = hostile();
    summary.warnings[0].text = hostile();
    summary.warnings[0].advice = hostile();
    if let Some(point) = &mut summary.operating_point {
        point.because = hostile();
    }
    if let Some(outcome) = &mut summary.slo {
        outcome.slo = hostile();
        outcome.levels[1].outcome = hostile();
        outcome.levels[1].because = vec![hostile()];
    }
    let page = html(&summary, &example::series());
    let document = parsed(&page);
    for node in document.descendants().filter(|node| node.is_element()) {
        assert!(!["script", "img"].contains(&node.tag_name().name()));
        assert!(node.attribute("onerror").is_none());
    }
    assert!(!page.contains('\u{202e}') && !page.contains('\u{1b}'));
    let num_told = page.matches("&lt;script&gt;alert(&#39;x&#39;)").count();
    assert!(num_told > 30, "it is told, as text: {num_told}");
    assert_eq!(
        texts(&document, "title")
            .first()
            .map(|title| title.contains("<script>")),
        Some(true)
    );
}

#[test]
fn a_run_of_one_level_without_anything_else_has_a_page() {
    let mut summary = example::summary();
    summary.levels = vec![Level {
        users: Some(8),
        ..Level::default()
    }];
    summary.operating_point = None;
    summary.slo = None;
    summary.warnings.clear();
    summary.server_metrics.clear();
    let page = html(&summary, &Series::default());
    assert_eq!(texts(&parsed(&page), "h2").first(), Some(&"Levels"));
    summary.levels.clear();
    parsed(&html(&summary, &Series::default()));
}

#[test]
fn a_distribution_of_a_level_that_is_not_there_is_left_out() {
    let mut summary = example::summary();
    summary.levels.truncate(2);
    parsed(&html(&summary, &example::series()));
}
