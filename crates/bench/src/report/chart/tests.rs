//! What a chart holds.

use super::*;

fn chart(points: &[(f64, f64)]) -> Chart {
    let axis = |label: &str, scale| Axis {
        label: label.to_owned(),
        scale,
        ticks: Vec::new(),
    };
    Chart {
        title: "a <title>".to_owned(),
        size: [480, 300],
        x: axis("users & more", Scale::Log),
        y: axis("tok/s", Scale::Linear),
        curves: vec![Curve {
            name: "all".to_owned(),
            ink: Ink::Kind(0),
            shape: Shape::Marked,
            points: points
                .iter()
                .map(|&(x, y)| Point {
                    x,
                    y,
                    interval: Some([y * 0.9, y * 1.1]),
                    title: format!("<b>{x}</b>"),
                    label: String::new(),
                })
                .collect(),
        }],
        shades: vec![Shade {
            range: [2.0, 1e9],
            title: "the \"knee\"".to_owned(),
        }],
        rules: vec![Rule {
            at: 4.0,
            label: "N*".to_owned(),
        }],
    }
}

#[test]
fn a_chart_is_well_formed_and_says_its_points_when_pointed_at() {
    let text = svg(&chart(&[(1.0, 70.0), (8.0, 230.0), (64.0, 320.0)])).expect("points");
    let document = roxmltree::Document::parse(&text).expect("well-formed");
    let titles: Vec<&str> = document
        .descendants()
        .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "title")))
        .filter_map(|node| node.text())
        .collect();
    assert_eq!(
        titles,
        ["the \"knee\"", "<b>1</b>", "<b>8</b>", "<b>64</b>"]
    );
    assert_eq!(
        document.root_element().attribute("aria-label"),
        Some("a <title>")
    );
}

#[test]
fn higher_throughput_stands_higher() {
    let text = svg(&chart(&[(1.0, 70.0), (8.0, 230.0)])).expect("points");
    let document = roxmltree::Document::parse(&text).expect("well-formed");
    let places: Vec<[f64; 2]> = document
        .descendants()
        .filter(|node| node.attribute("fill-opacity").is_some() && node.attribute("cx").is_some())
        .map(|node| {
            ["cx", "cy"].map(|name| {
                node.attribute(name)
                    .and_then(|at| at.parse().ok())
                    .unwrap_or(f64::NAN)
            })
        })
        .collect();
    assert_eq!(places.len(), 2);
    assert!(
        places[0][0] < places[1][0] && places[0][1] > places[1][1],
        "{places:?}"
    );
}

#[test]
fn a_chart_of_nothing_is_none() {
    assert!(svg(&chart(&[])).is_none());
    assert!(svg(&chart(&[(0.0, 1.0)])).is_none());
}

#[test]
fn figures_beyond_all_reason_are_drawn_without_a_panic() {
    for value in [f64::NAN, f64::INFINITY, 1e300, 1e-300, -5.0, 0.0] {
        let _ = svg(&chart(&[(1.0, value), (value, 3.0), (2.0, 2.0)]));
    }
}

#[test]
fn every_ink_has_a_dark_one() {
    for ink in (0..6)
        .map(Ink::Kind)
        .chain((0..8).map(|idx| Ink::Step(idx, 8)))
    {
        let is_mapped = DARK.iter().any(|(light, _)| *light == ink.css());
        assert!(is_mapped, "{ink:?}");
    }
}
