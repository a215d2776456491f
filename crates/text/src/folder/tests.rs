//! Folders written by each test: which file wins, and what is said of a bad one.
//!
//! Whole tokenizers are compared with an oracle in `tests/it`; here they are as small as can be.

use std::fs;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::{Conversation, PromptEnding};

/// A folder in the making.
struct Made(TempDir);

impl Made {
    /// An empty one.
    fn empty() -> Made {
        Made(tempfile::tempdir().expect("a folder can be made"))
    }

    /// One with a tokenizer of two letters and three control tokens, `<one>` … `<three>`: 2, 3 and 4.
    fn with_tokenizer() -> Made {
        let control =
            |(content, id): (&str, u32)| json!({"id": id, "content": content, "special": true});
        let added: Vec<Value> = [("<one>", 2), ("<two>", 3), ("<three>", 4)]
            .map(control)
            .to_vec();
        let file = json!({
            "added_tokens": added,
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
        });
        Made::empty().json("tokenizer.json", file)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(self, name: &str, content: impl AsRef<[u8]>) -> Made {
        let path = self.path(name);
        let parent = path.parent().expect("it is in the folder");
        fs::create_dir_all(parent).expect("the folder is writable");
        fs::write(path, content).expect("the folder is writable");
        self
    }

    fn json(self, name: &str, content: Value) -> Made {
        self.file(name, content.to_string())
    }

    fn open(&self) -> FolderText {
        let opened = FolderText::open(self.0.path());
        opened.unwrap_or_else(|error| panic!("{}", chain(&error)))
    }

    /// The error, and that it names the file or folder `name`.
    fn refusal(&self, name: &str) -> FolderError {
        let error = FolderText::open(self.0.path()).expect_err("it is refused");
        let path = self.path(name).display().to_string();
        assert!(error.to_string().contains(&path), "{}", chain(&error));
        error
    }

    fn end_tokens(&self) -> Vec<u32> {
        self.open().end_tokens.iter().map(|token| token.0).collect()
    }

    /// What the template writes without tools, and with some.
    fn rendered(&self) -> Option<[String; 2]> {
        let template = self.open().template?;
        let tool = json!({"type": "function", "function": {"name": "f", "parameters": {}}});
        Some([&[][..], &[tool]].map(|tools| {
            let rendered = template.render_conversation(&Conversation {
                messages: &[json!({"role": "user", "content": "hi"})],
                tools,
                ending: PromptEnding::AfterMessages,
                variables: &Map::new(),
            });
            rendered.expect("it is plain text").text
        }))
    }
}

fn chain(error: &FolderError) -> String {
    use std::error::Error as _;
    let source = error.source().map(ToString::to_string);
    format!("{error}: {}", source.unwrap_or_default())
}

/// Every file whose content is one JSON object.
const OBJECTS: [&str; 5] = [
    TOKENIZER_CONFIG,
    SPECIAL_TOKENS_MAP,
    GENERATION_CONFIG,
    CONFIG,
    "chat_template.json",
];

#[test]
fn a_folder_without_any_of_the_files_has_no_text_and_no_end() {
    let text = Made::empty().open();
    assert!(text.tokenizer.is_none() && text.template.is_none());
    assert_eq!(text.end_tokens, []);
}

#[test]
fn without_a_tokenizer_end_tokens_are_known_and_templates_are_not() {
    let made = Made::empty()
        .json(CONFIG, json!({"eos_token_id": 7}))
        .file("chat_template.jinja", "hello");
    assert!(made.open().tokenizer.is_none() && made.open().template.is_none());
    assert_eq!(made.end_tokens(), [7]);
}

#[test]
fn both_configurations_name_end_tokens_and_each_counts_once() {
    for (generation, config, expected) in [
        (json!(7), json!(null), &[7][..]),
        (json!(null), json!([5, 6]), &[5, 6]),
        (json!([7, 5, 7]), json!(5), &[7, 5]),
        (json!(9), json!([8, 9]), &[9, 8]),
        (json!([]), json!(u32::MAX), &[u32::MAX]),
    ] {
        let made = Made::empty()
            .json(GENERATION_CONFIG, json!({"eos_token_id": generation}))
            .json(CONFIG, json!({"eos_token_id": config}));
        assert_eq!(made.end_tokens(), expected);
    }
}

#[test]
fn the_tokenizers_own_end_token_comes_first_and_ids_of_no_token_are_left_out() {
    let made = Made::with_tokenizer()
        .json(TOKENIZER_CONFIG, json!({"eos_token": "<three>"}))
        .json(GENERATION_CONFIG, json!({"eos_token_id": [2, 99, 4]}));
    assert_eq!(made.end_tokens(), [4, 2]);
    let tokenizer = made.open().tokenizer.expect("there is one");
    assert_eq!(tokenizer.eos(), Some(TokenId(4)));
}

#[test]
fn an_end_token_that_is_no_id_is_refused_with_its_file() {
    for file in [GENERATION_CONFIG, CONFIG] {
        for value in [
            json!("</s>"),
            json!(-1),
            json!(1.5),
            json!(1_u64 << 32),
            json!([1, "2"]),
            json!({"id": 1}),
        ] {
            let made = Made::empty().json(file, json!({"eos_token_id": value}));
            let refusal = made.refusal(file);
            assert!(matches!(refusal, FolderError::Malformed { .. }));
            assert!(refusal.to_string().contains("eos_token_id"), "{refusal}");
        }
    }
}

#[test]
fn the_tokenizers_configuration_names_its_tokens_before_the_older_file() {
    let bos = |made: &Made| made.open().tokenizer.expect("there is one").bos();
    let older = || {
        let object = json!({"bos_token": {"content": "<two>", "lstrip": false}});
        Made::with_tokenizer().json(SPECIAL_TOKENS_MAP, object)
    };
    assert_eq!(bos(&older()), Some(TokenId(3)));
    let null = older().json(TOKENIZER_CONFIG, json!({"bos_token": null}));
    assert_eq!(bos(&null), Some(TokenId(3)));
    let both = older().json(TOKENIZER_CONFIG, json!({"bos_token": "<one>"}));
    assert_eq!(bos(&both), Some(TokenId(2)));
}

#[test]
fn whether_bos_is_added_is_a_flag_and_nothing_else() {
    let with = |flag: Value| {
        let settings = json!({"bos_token": "<one>", "add_bos_token": flag});
        Made::with_tokenizer().json(TOKENIZER_CONFIG, settings)
    };
    for (flag, prefix) in [
        (json!(true), &[TokenId(2)][..]),
        (json!(false), &[]),
        (json!(null), &[]),
    ] {
        let tokenizer = with(flag).open().tokenizer.expect("there is one");
        assert_eq!(tokenizer.prompt_prefix(), prefix);
    }
    let refusal = with(json!("yes")).refusal(TOKENIZER_CONFIG).to_string();
    assert!(refusal.contains("add_bos_token"), "{refusal}");
}

#[test]
fn a_token_without_a_text_is_refused_with_its_file() {
    for file in [TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP] {
        for token in [json!(3), json!({"text": "<one>"}), json!({"content": 3})] {
            let made = Made::with_tokenizer().json(file, json!({"eos_token": token}));
            let refusal = made.refusal(file).to_string();
            assert!(refusal.contains("eos_token is no token"), "{refusal}");
        }
    }
}

#[test]
fn the_default_template_is_that_of_the_first_place_which_has_one() {
    // In the order of precedence; each place says its own number.
    let places: [(&str, String); 6] = [
        ("chat_template.jinja", "0".to_owned()),
        ("additional_chat_templates/default.jinja", "1".to_owned()),
        ("chat_templates/default.jinja", "2".to_owned()),
        (
            "chat_template.json",
            json!({"chat_template": "3"}).to_string(),
        ),
        (TOKENIZER_CONFIG, json!({"chat_template": "4"}).to_string()),
        // Never a place for templates.
        (CONFIG, json!({"chat_template": "5"}).to_string()),
    ];
    for first in 0..places.len() {
        let mut made = Made::with_tokenizer();
        for (name, content) in &places[first..] {
            made = made.file(name, content);
        }
        let expected = (first < 5).then(|| [first.to_string(), first.to_string()]);
        assert_eq!(made.rendered(), expected);
    }
}

#[test]
fn a_list_of_templates_is_chosen_from_by_name() {
    let list = json!([
        {"name": "rag", "template": "r"},
        {"name": "tool_use", "template": "t"},
        {"name": "default", "template": "d"},
        {"name": "default", "template": "second of its name"},
    ]);
    for file in [TOKENIZER_CONFIG, "chat_template.json"] {
        let made = Made::with_tokenizer().json(file, json!({"chat_template": list}));
        assert_eq!(made.rendered(), Some(["d".to_owned(), "t".to_owned()]));
    }
}

#[test]
fn without_a_default_there_is_no_template() {
    let list = json!([{"name": "tool_use", "template": "t"}]);
    let made = Made::with_tokenizer().json(TOKENIZER_CONFIG, json!({"chat_template": list}));
    assert_eq!(made.rendered(), None);
}

#[test]
fn a_template_for_tools_may_be_a_file_of_its_own() {
    for folder in ["additional_chat_templates", "chat_templates"] {
        let made = Made::with_tokenizer()
            .json(TOKENIZER_CONFIG, json!({"chat_template": "d"}))
            .file(&format!("{folder}/tool_use.jinja"), "t")
            .file(&format!("{folder}/default.txt"), "no template");
        assert_eq!(made.rendered(), Some(["d".to_owned(), "t".to_owned()]));
    }
}

#[test]
fn a_default_in_a_file_hides_the_older_template_for_tools() {
    let list = json!([
        {"name": "default", "template": "old"},
        {"name": "tool_use", "template": "old for tools"},
    ]);
    let made = Made::with_tokenizer()
        .json(TOKENIZER_CONFIG, json!({"chat_template": list}))
        .file("chat_template.jinja", "new");
    assert_eq!(made.rendered(), Some(["new".to_owned(), "new".to_owned()]));
}

#[test]
fn templates_know_the_texts_of_both_ends() {
    let made = Made::with_tokenizer()
        .json(
            TOKENIZER_CONFIG,
            json!({"bos_token": "<one>", "eos_token": "<two>"}),
        )
        .file("chat_template.jinja", "{{ bos_token }}.{{ eos_token }}");
    assert_eq!(made.rendered().expect("there is one")[0], "<one>.<two>");
}

#[test]
fn what_is_neither_a_template_nor_a_list_of_named_ones_is_refused() {
    for file in [TOKENIZER_CONFIG, "chat_template.json"] {
        for value in [
            json!(3),
            json!({"default": "d"}),
            json!(["d"]),
            json!([{"name": "default"}]),
            json!([{"template": "d"}]),
            json!([{"name": "default", "template": null}]),
        ] {
            let made = Made::with_tokenizer().json(file, json!({"chat_template": value}));
            let refusal = made.refusal(file).to_string();
            assert!(refusal.contains("chat_template is neither"), "{refusal}");
        }
    }
}

#[test]
fn a_template_that_does_not_parse_is_refused_by_its_name() {
    let made = Made::with_tokenizer()
        .file("chat_template.jinja", "fine")
        .file("chat_templates/tool_use.jinja", "{% if %}");
    let refusal = FolderText::open(made.0.path()).expect_err("it is refused");
    let FolderError::Template { name, folder, .. } = &refusal else {
        panic!("{refusal}");
    };
    assert_eq!(
        (name.as_str(), folder.as_path()),
        ("tool_use", made.0.path())
    );
}

#[test]
fn a_tokenizer_that_is_refused_is_named_with_the_reason() {
    for (content, words) in [
        ("{}", "model"),
        ("no JSON", "expected"),
        (r#"{"model": {"type": "Unigram", "vocab": []}}"#, "Unigram"),
    ] {
        let refusal = Made::empty()
            .file("tokenizer.json", content)
            .refusal("tokenizer.json");
        assert!(matches!(refusal, FolderError::Tokenizer { .. }));
        assert!(chain(&refusal).contains(words), "{}", chain(&refusal));
    }
}

#[test]
fn a_file_that_is_no_json_object_is_refused_with_its_place() {
    for name in OBJECTS {
        for content in ["", "[]", "\"text\"", "{\"a\": 1", "{} {}", "\u{feff}{}"] {
            let refusal = Made::with_tokenizer().file(name, content).refusal(name);
            let is_malformed = matches!(refusal, FolderError::Malformed { .. });
            assert!(is_malformed, "{name} {content:?}: {refusal}");
        }
    }
}

#[test]
fn a_template_that_is_no_text_is_refused() {
    for name in ["chat_template.jinja", "chat_templates/rag.jinja"] {
        let refusal = Made::with_tokenizer().file(name, b"\xff\xfe").refusal(name);
        assert!(refusal.to_string().contains("UTF-8"), "{refusal}");
    }
}

#[test]
fn a_file_beyond_its_limit_is_refused_before_it_is_read() {
    let small = OBJECTS.map(|name| (name, LIMITS.settings_bytes_max));
    let others = [
        ("chat_template.jinja", LIMITS.settings_bytes_max),
        ("tokenizer.json", LIMITS.tokenizer_bytes_max),
    ];
    for (name, limit) in small.into_iter().chain(others) {
        let made = Made::with_tokenizer();
        let file = File::create(made.path(name)).expect("the folder is writable");
        // All holes: it takes no room on the disk.
        file.set_len(limit + 1).expect("a sparse file can be made");
        let refusal = made.refusal(name);
        let FolderError::TooLarge { bytes_max, .. } = refusal else {
            panic!("{name}: {refusal}");
        };
        assert_eq!(bytes_max, limit);
    }
}

#[test]
fn a_file_of_just_its_limit_is_read() {
    let made = Made::empty();
    let mut content = b"{\"eos_token_id\": 7}".to_vec();
    content.resize(LIMITS.settings_bytes_max as usize, b' ');
    assert_eq!(made.file(CONFIG, content).end_tokens(), [7]);
}

/// Its size is told as nothing.
#[cfg(target_os = "linux")]
#[test]
fn a_device_without_an_end_is_refused_as_too_large() {
    let made = Made::empty();
    std::os::unix::fs::symlink("/dev/zero", made.path(CONFIG)).expect("the folder is writable");
    let refusal = made.refusal(CONFIG);
    assert!(matches!(refusal, FolderError::TooLarge { .. }), "{refusal}");
}

#[test]
fn a_folder_in_the_place_of_a_file_cannot_be_read() {
    for name in OBJECTS
        .into_iter()
        .chain(["chat_template.jinja", "tokenizer.json"])
    {
        let made = match name {
            "tokenizer.json" => Made::empty(),
            _ => Made::with_tokenizer(),
        };
        fs::create_dir(made.path(name)).expect("the folder is writable");
        let refusal = made.refusal(name);
        assert!(matches!(refusal, FolderError::Unreadable { .. }), "{name}");
    }
}

#[test]
fn a_file_in_the_place_of_a_folder_of_templates_cannot_be_read() {
    for name in ["additional_chat_templates", "chat_templates"] {
        let refusal = Made::with_tokenizer().file(name, "d").refusal(name);
        assert!(matches!(refusal, FolderError::Unreadable { .. }), "{name}");
    }
}

#[test]
fn a_folder_of_more_templates_than_the_limit_is_refused() {
    let with = |num_templates: usize| {
        (0..num_templates).fold(Made::with_tokenizer(), |made, idx| {
            made.file(&format!("chat_templates/{idx}.jinja"), "x")
        })
    };
    with(LIMITS.templates_max).open();
    let refusal = with(LIMITS.templates_max + 1).refusal("chat_templates");
    let is_too_many = matches!(refusal, FolderError::TooManyTemplates { .. });
    assert!(is_too_many, "{refusal}");
}
