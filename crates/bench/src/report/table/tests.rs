//! What the table says, and that it fits.

use super::*;
use crate::report::example;

#[test]
fn the_table_says_it_all_within_100_columns() {
    let text = table(&example::summary(), Style::Plain);
    println!("{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}
