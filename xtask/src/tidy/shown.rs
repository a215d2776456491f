//! Sizes that a reader must judge: the longest functions and files, and long argument lists.
//! They are a smell, not a gate.

use syn::spanned::Spanned;
use syn::visit::Visit;

use super::sources::Source;

/// How many of each are shown.
const NUM_SHOWN: usize = 10;

/// Prints the ten longest functions and files, and functions with more than five arguments.
pub fn print(sources: &[Source]) {
    let mut files: Vec<(usize, String)> = sources
        .iter()
        .map(|source| (source.text.lines().count(), source.path.clone()))
        .collect();
    let mut functions = Vec::new();
    let mut many_arguments = Vec::new();
    for source in sources {
        // A file that does not parse is the compiler's to report.
        let Ok(file) = syn::parse_file(&source.text) else {
            continue;
        };
        let mut visitor = Functions {
            path: &source.path,
            functions: &mut functions,
            many_arguments: &mut many_arguments,
        };
        visitor.visit_file(&file);
    }
    print_longest("longest files", &mut files);
    print_longest("longest functions", &mut functions);
    print_longest("most arguments (over 5)", &mut many_arguments);
}

fn print_longest(title: &str, rows: &mut [(usize, String)]) {
    rows.sort_by(|a, b| b.cmp(a));
    println!("{title}:");
    for (size, name) in rows.iter().take(NUM_SHOWN) {
        println!("  {size:5}  {name}");
    }
}

struct Functions<'a> {
    path: &'a str,
    functions: &'a mut Vec<(usize, String)>,
    many_arguments: &'a mut Vec<(usize, String)>,
}

impl Functions<'_> {
    fn see(&mut self, signature: &syn::Signature, num_lines: usize) {
        let name = format!("{}::{}", self.path, signature.ident);
        if signature.inputs.len() > 5 {
            self.many_arguments
                .push((signature.inputs.len(), name.clone()));
        }
        self.functions.push((num_lines, name));
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.see(&item.sig, num_lines(item));
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.see(&item.sig, num_lines(item));
        syn::visit::visit_impl_item_fn(self, item);
    }
}

fn num_lines(item: &impl Spanned) -> usize {
    let span = item.span();
    span.end().line.saturating_sub(span.start().line) + 1
}
