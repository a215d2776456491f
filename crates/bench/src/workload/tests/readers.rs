//! Data files, sound and broken.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn read(content: &str) -> Result<Workload, WorkloadError> {
    read_as(content, &TraceOptions::default())
}

fn read_as(content: &str, options: &TraceOptions) -> Result<Workload, WorkloadError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data");
    std::fs::write(&path, content).expect("written");
    Workload::from_data(&path, options)
}

fn refusal(content: &str) -> String {
    read(content).expect_err(content).to_string()
}

fn conversations(workload: &Workload) -> Vec<Conversation> {
    let vocabulary = fake_vocabulary();
    (0..)
        .map_while(|number| workload.conversation(number, 1, &vocabulary))
        .collect()
}

/// (due, prompt tokens, output tokens) of each.
fn requests(workload: &Workload) -> Vec<(f64, u64, u64)> {
    let of = |conversation: &Conversation| {
        let turn = &conversation.turns[0];
        (
            conversation.due_s.expect("a trace"),
            turn.num_prompt_tokens.expect("lengths"),
            turn.num_output_tokens.expect("lengths"),
        )
    };
    conversations(workload).iter().map(of).collect()
}

#[test]
fn azure_columns_are_found_by_name_in_any_order() {
    let forth = read(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,4808,10\n2023-11-16 18:15:47.0,3180,8\n",
    );
    let back = read(
        "GeneratedTokens,x,ContextTokens,TIMESTAMP\n10,0,4808,2023-11-16 18:15:46.5\n8,0,3180,2023-11-16 18:15:47.0\n",
    );
    for workload in [forth, back] {
        let workload = workload.expect("reads");
        assert_eq!(requests(&workload), [(0.0, 4808, 10), (0.5, 3180, 8)]);
        assert_eq!(workload.due_times().as_deref(), Some(&[0.0, 0.5][..]));
        assert!(
            workload.description.contains("azure"),
            "{}",
            workload.description
        );
    }
}

#[test]
fn azure_dates_may_have_offsets_and_seven_digits() {
    let workload = read(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,100,1\n2024-05-10 00:00:01.0099300+00:00,100,1\n",
    );
    assert_eq!(requests(&workload.expect("reads"))[1].0, 1.0);
}

#[test]
fn burstgpt_columns_are_found_by_name_and_failures_left_out() {
    let workload = read(
        "\u{feff}Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\r\n5,ChatGPT,472,18,490,Conversation log\r\n45,GPT-4,1087,0,1087,API log\r\n118,GPT-4,417,276,693,API log\r\n",
    )
    .expect("reads");
    assert_eq!(requests(&workload), [(0.0, 472, 18), (113.0, 417, 276)]);
    assert_eq!(workload.warnings[0].code, "records_skipped");
}

#[test]
fn a_trace_out_of_order_is_sorted_and_that_is_said() {
    let workload = read("Timestamp,Request tokens,Response tokens\n9,100,1\n4,200,2\n6,300,3\n")
        .expect("reads");
    assert_eq!(
        requests(&workload),
        [(0.0, 200, 2), (2.0, 300, 3), (5.0, 100, 1)]
    );
    assert_eq!(workload.warnings[0].code, "trace_out_of_order");
}

#[test]
fn what_is_wrong_in_a_table_is_named_with_its_line() {
    let header = "Timestamp,Request tokens,Response tokens\n1,2,3\n";
    for (row, expected) in [
        ("2,NaN,3", "line 3: Request tokens is NaN"),
        ("2,-4,3", "line 3: Request tokens is -4"),
        ("2,1.5,3", "line 3: Request tokens is 1.5"),
        ("2,1e15,3", "line 3: Request tokens is 1000000000000000"),
        (
            "2,four,3",
            "line 3: Request tokens is \"four\", not a number",
        ),
        ("-2,4,3", "line 3: Timestamp is -2"),
        ("inf,4,3", "line 3: Timestamp is inf"),
        ("2,4", "line 3"),
    ] {
        let error = refusal(&format!("{header}{row}\n"));
        assert!(error.contains(expected), "{row}: {error}");
    }
    let error = refusal("Timestamp,Request tokens,Total\n1,2,3\n");
    assert!(
        error.contains("no column \"Response tokens\"; it has Timestamp, Request tokens, Total"),
        "{error}"
    );
    let error = refusal("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n");
    assert!(
        error.contains("line 2: TIMESTAMP is \"yesterday\""),
        "{error}"
    );
}

#[test]
fn files_of_nothing_are_refused() {
    for content in [
        "",
        "\n\r\n ",
        "\u{feff}",
        "[]",
        "Timestamp,Request tokens,Response tokens\n",
        "hello",
        "[{\"conversations\": []}]",
    ] {
        refusal(content);
    }
}

const MOONCAKE: &str = concat!(
    "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 52, \"hash_ids\": [1, 2, 3]}\n",
    "{\"timestamp\": 3000, \"input_length\": 1536, \"output_length\": 26, \"hash_ids\": [1, 2, 9]}\r\n",
    "\n",
    "{\"timestamp\": 3000, \"input_length\": 500, \"output_length\": 7, \"hash_ids\": [4]}\n",
);

fn mooncake_as(timestamps: Timestamps) -> TraceOptions {
    TraceOptions {
        timestamps: Some(timestamps),
        ..TraceOptions::default()
    }
}

#[test]
fn mooncake_times_are_what_they_are_stated_to_be() {
    let due = |timestamps| -> Vec<f64> {
        let workload = read_as(MOONCAKE, &mooncake_as(timestamps)).expect("reads");
        requests(&workload)
            .iter()
            .map(|request| request.0)
            .collect()
    };
    assert_eq!(due(Timestamps::Cumulative), [0.0, 3.0, 3.0]);
    assert_eq!(due(Timestamps::Delta), [0.0, 3.0, 6.0]);
    let guessed = read(MOONCAKE).expect("reads");
    assert!(
        guessed.description.contains("taken as cumulative"),
        "{}",
        guessed.description
    );
}

#[test]
fn mooncake_prompts_share_the_blocks_that_they_name() {
    let workload = read_as(MOONCAKE, &mooncake_as(Timestamps::Cumulative)).expect("reads");
    let all = conversations(&workload);
    let words = |idx: usize| -> Vec<&str> { all[idx].turns[0].text.split(' ').skip(1).collect() };
    assert_eq!(words(0)[..1024], words(1)[..1024], "blocks 1 and 2");
    assert_ne!(words(0)[1024..1070], words(1)[1024..1070], "blocks 3 and 9");
    assert_ne!(words(0)[0], words(2)[0]);
    let shared: Vec<u64> = all
        .iter()
        .map(|conversation| conversation.turns[0].num_shared_tokens)
        .collect();
    assert_eq!(shared, [0, 1024, 0]);
    let share = workload.classes[0].shared_share.expect("known");
    assert!((share - 1024.0 / 3136.0).abs() < 1e-12, "{share}");
    for (conversation, (_, tokens, _)) in all.iter().zip(requests(&workload)) {
        assert_eq!(fake_chat_count(&first_chat(conversation)), tokens);
    }
}

#[test]
fn stated_timestamps_that_cannot_be_are_refused() {
    let lines = |times: &dyn Fn(u64) -> u64| -> String {
        let line = |idx| {
            format!(
                "{{\"timestamp\": {}, \"input_length\": 9, \"output_length\": 1}}\n",
                times(idx)
            )
        };
        (0..40).map(line).collect()
    };
    let rising = lines(&|idx| idx * 300);
    let error = read_as(&rising, &mooncake_as(Timestamps::Delta))
        .expect_err("cumulative")
        .to_string();
    assert!(error.contains("look cumulative"), "{error}");
    assert!(read_as(&rising, &mooncake_as(Timestamps::Cumulative)).is_ok());
    let jumping = lines(&|idx| idx * 53 % 100);
    let error = read_as(&jumping, &mooncake_as(Timestamps::Cumulative))
        .expect_err("delta")
        .to_string();
    assert!(error.contains("look like delta"), "{error}");
    let equal = lines(&|_| 100);
    assert!(
        read_as(&equal, &mooncake_as(Timestamps::Delta)).is_ok(),
        "a constant rate"
    );
}

#[test]
fn what_is_wrong_in_a_mooncake_line_is_named() {
    let sound = "{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 1}\n";
    for (line, expected) in [
        (
            "{\"timestamp\": -1, \"input_length\": 9, \"output_length\": 1}",
            "line 2: timestamp is -1",
        ),
        (
            "{\"timestamp\": 1, \"input_length\": -9, \"output_length\": 1}",
            "line 2: input_length is -9",
        ),
        (
            "{\"timestamp\": 1, \"input_length\": 1e12, \"output_length\": 1}",
            "line 2: input_length is",
        ),
        (
            "{\"timestamp\": 1, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [1, 2]}",
            "line 2: has 2 hash_ids",
        ),
        (
            "{\"timestamp\": 1, \"input_length\": 9}",
            "line 2: missing field `output_length`",
        ),
        ("{\"timestamp\": NaN}", "line 2"),
        ("{\"timestamp\": 1,", "line 2"),
    ] {
        let error = refusal(&format!("{sound}{line}\n"));
        assert!(error.contains(expected), "{line}: {error}");
        assert!(!error.contains("at line 1"), "{error}");
    }
}

#[test]
fn a_conversation_of_sharegpt_is_taken_as_far_as_it_goes_to_and_fro() {
    let workload = read(
        r#"[{"id": "a", "conversations": [
              {"from": "system", "value": "Be kind."}, {"from": "human", "value": "One?"}, {"from": "gpt", "value": "Eins, zwei."},
              {"from": "human", "value": "Two?"}, {"from": "gpt", "value": "Zwei."}, {"from": "gpt", "value": "Drei."}]},
            {"conversations": [{"from": "gpt", "value": "I begin."}, {"from": "human", "value": "Why?"}]},
            {"conversations": [{"from": "gpt", "value": "Alone."}]},
            {"messages": [{"role": "user", "content": "Three?"}, {"role": "assistant", "content": "Drei."}]}]"#,
    )
    .expect("reads");
    let all = conversations(&workload);
    let questions: Vec<Vec<&str>> = all
        .iter()
        .map(|conversation| {
            conversation
                .turns
                .iter()
                .map(|turn| turn.text.as_str())
                .collect()
        })
        .collect();
    assert_eq!(
        questions,
        [vec!["One?", "Two?"], vec!["Why?"], vec!["Three?"]]
    );
    assert_eq!(all[0].system.as_deref(), Some("Be kind."));
    assert_eq!(all[0].turns[0].answer.as_deref(), Some("Eins, zwei."));
    assert_eq!(all[0].turns[0].num_output_tokens, Some(3));
    assert_eq!(all[0].turns[0].output, OutputLength::AtMost);
    assert_eq!(all[0].turns[0].num_prompt_tokens, None);
    assert!(
        workload.warnings[0].text.contains("1 records"),
        "{:?}",
        workload.warnings
    );
    assert!(!workload.needs_vocabulary());
}

#[test]
fn prompts_come_as_text_or_messages_with_or_without_a_length() {
    let workload = read(
        "{\"prompt\": \"A\", \"output_tokens\": 5}\n{\"text\": \"B\", \"max_tokens\": 6, \"other\": 1}\n{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"C\"}, {\"role\": \"assistant\", \"content\": \"D\"}, {\"role\": \"user\", \"content\": \"E\"}]}",
    )
    .expect("reads");
    let all = conversations(&workload);
    let told: Vec<_> = all
        .iter()
        .map(|conversation| {
            let turn = &conversation.turns[0];
            (turn.text.as_str(), turn.num_output_tokens, turn.output)
        })
        .collect();
    assert_eq!(
        told,
        [
            ("A", Some(5), OutputLength::Exact),
            ("B", Some(6), OutputLength::AtMost),
            ("E", None, OutputLength::AtMost)
        ]
    );
    assert_eq!(all[2].system.as_deref(), Some("S"));
    let opening: Vec<_> = all[2]
        .opening
        .iter()
        .map(|message| (message.role, &*message.text))
        .collect();
    assert_eq!(opening, [(Role::User, "C"), (Role::Assistant, "D")]);
    assert_eq!(workload.warnings[0].code, "no_output_length");
}

#[test]
fn what_is_wrong_in_a_line_of_prompts_is_named() {
    for (line, expected) in [
        (
            "{\"prompt\": \"A\", \"text\": \"B\"}",
            "exactly one of prompt, text and messages",
        ),
        (
            "{\"question\": \"A\"}",
            "exactly one of prompt, text and messages",
        ),
        ("{\"prompt\": \" \"}", "the prompt is empty"),
        (
            "{\"prompt\": \"A\", \"output_tokens\": 0}",
            "output_tokens is 0",
        ),
        (
            "{\"prompt\": \"A\", \"max_tokens\": -3}",
            "max_tokens is -3",
        ),
        ("{\"messages\": []}", "the last message must be the user's"),
        (
            "{\"messages\": [{\"role\": \"robot\", \"content\": \"x\"}]}",
            "role \"robot\"",
        ),
    ] {
        let error = refusal(&format!("{{\"prompt\": \"sound\"}}\r\n{line}\r\n"));
        assert!(
            error.contains(&format!("line 2: {expected}")) || error.contains(expected),
            "{line}: {error}"
        );
        assert!(error.contains("line 2"), "{error}");
    }
}

#[test]
fn data_without_times_is_no_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("p.jsonl");
    std::fs::write(&path, "{\"prompt\": \"A\"}\n").expect("written");
    let error = Workload::from_trace(&path, &TraceOptions::default()).expect_err("no times");
    assert!(matches!(error, WorkloadError::NoTimes { .. }));
    assert_eq!(
        Workload::load(&path)
            .expect("as a workload")
            .num_conversations(),
        Some(1)
    );
}

fn of_prompts(num: usize, lines: &str) -> Workload {
    let folder = tempfile::tempdir().expect("a folder");
    let prompts: String = (0..num)
        .map(|idx| format!("{{\"prompt\": \"question {idx}\"}}\n"))
        .collect();
    std::fs::write(folder.path().join("p.jsonl"), prompts).expect("written");
    let text = format!(
        "version = 1\nname = \"p\"\n[[class]]\nname = \"a\"\noutput = 4\ndata = {{ file = \"p.jsonl\", format = \"prompts\"{lines} }}\n"
    );
    file::parse(&text, "test.toml", folder.path()).expect("reads")
}

#[test]
fn data_ends_where_it_ends_and_each_record_is_asked_once() {
    for (num, lines) in [
        (1, ", order = \"shuffled\""),
        (2, ", order = \"shuffled\""),
        (60, ", order = \"shuffled\""),
        (97, ""),
    ] {
        let workload = of_prompts(num, lines);
        assert_eq!(workload.num_conversations(), Some(num as u64));
        let all = conversations(&workload);
        let texts: HashSet<&str> = all
            .iter()
            .map(|conversation| conversation.turns[0].text.as_str())
            .collect();
        assert_eq!((all.len(), texts.len()), (num, num), "{lines}");
    }
    let shuffled = of_prompts(60, ", order = \"shuffled\"");
    assert_ne!(
        conversations(&shuffled)[0].turns[0].text,
        conversations(&shuffled)[1].turns[0].text
    );
    let vocabulary = fake_vocabulary();
    let of = |seed| -> Vec<_> {
        (0..60)
            .filter_map(|number| shuffled.conversation(number, seed, &vocabulary))
            .map(|asked| asked.turns[0].text.clone())
            .collect()
    };
    assert_ne!(of(1), of(2));
}

#[test]
fn repeated_data_begins_with_a_nonce_from_the_second_time_on() {
    let workload = of_prompts(3, ", repeat = true");
    let vocabulary = fake_vocabulary();
    let text = |number| ask(&workload, number, &vocabulary).turns[0].text.clone();
    assert_eq!(text(1), "question 1");
    assert!(text(4).ends_with("\n\nquestion 1"), "{}", text(4));
    assert_ne!(text(4), text(7));
    assert_eq!(workload.num_conversations(), None);
}

#[test]
fn broken_files_are_refused_and_never_more_than_that() {
    let sound = [
        MOONCAKE,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,48,10\n2023-11-16 18:15:47.0,31,8\n",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,log\n",
        "[{\"conversations\": [{\"from\": \"human\", \"value\": \"One?\"}, {\"from\": \"gpt\", \"value\": \"Eins.\"}]}]",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"C\"}], \"max_tokens\": 3}\n",
    ];
    let config = ProptestConfig::with_cases(400);
    proptest!(config, |(which in 0..sound.len(), cuts in prop::collection::vec((0_usize..400, any::<u8>(), 0_u8..3), 1..5))| {
        let mut bytes = sound[which].as_bytes().to_vec();
        for (place, byte, how) in cuts {
            let place = place % (bytes.len() + 1);
            match how {
                0 => bytes.insert(place, byte),
                1 => bytes.truncate(place),
                _ => if let Some(old) = bytes.get_mut(place) { *old = byte },
            }
        }
        if let Ok(reading) = super::super::readers::read(Path::new("data"), &bytes, &TraceOptions::default()) {
            prop_assert!(!reading.records.is_empty());
            let due: Vec<f64> = reading.records.iter().filter_map(|record| record.due_s).collect();
            prop_assert!(due.iter().all(|due| due.is_finite() && *due >= 0.0));
            prop_assert!(due.is_sorted());
        }
    });
}
