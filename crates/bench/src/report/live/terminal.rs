//! The terminal, borrowed for the length of a run.
//!
//! It is given back when the guard is dropped, and before a panic's message is printed: a message on the alternate
//! screen would vanish with it. Drawn on stderr, so that what is piped from stdout stays data.

use std::io::{self, IsTerminal, Stderr, stderr, stdin};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::cursor::{Hide, Show};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::{LiveView, draw};

/// Whether the terminal is ours at the moment: there is one terminal to a process.
static IS_BORROWED: AtomicBool = AtomicBool::new(false);

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The run should end: first send no more, at the second wish end at once.
    Stop,
}

/// The terminal with the live page on it.
pub struct LiveTerminal {
    terminal: Terminal<CrosstermBackend<Stderr>>,
}

impl LiveTerminal {
    /// Whether there is a terminal to draw on and one to take keys from.
    pub fn is_there() -> bool {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        stderr().is_terminal() && stdin().is_terminal() && !is_dumb
    }

    /// Takes the terminal: raw, on the alternate screen.
    ///
    /// # Errors
    ///
    /// If it is no terminal, or does not do what it is told; then it is as it was before.
    ///
    /// # Panics
    ///
    /// If it is taken already.
    pub fn enter() -> io::Result<LiveTerminal> {
        give_back_before_a_panic_is_told();
        let was_borrowed = IS_BORROWED.swap(true, Ordering::SeqCst);
        assert!(!was_borrowed, "there is one terminal");
        let entered = enable_raw_mode()
            .and_then(|()| execute!(stderr(), EnterAlternateScreen, Hide))
            .and_then(|()| Terminal::new(CrosstermBackend::new(stderr())))
            // Not every terminal has a second screen.
            .and_then(|mut terminal| terminal.clear().map(|()| terminal));
        match entered {
            Ok(terminal) => Ok(LiveTerminal { terminal }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// Shows the page.
    ///
    /// # Errors
    ///
    /// If the terminal is gone.
    pub fn draw(&mut self, view: &LiveView) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame, view)).map(|_| ())
    }

    /// What the user wants, if something is wanted within `wait`. Blocks the thread for as long; zero does not wait.
    ///
    /// # Errors
    ///
    /// If the terminal is gone.
    pub fn wish(&mut self, wait: Duration) -> io::Result<Option<Wish>> {
        let mut is_there = event::poll(wait)?;
        // Everything typed until now, so that a wish is not behind a paste.
        while is_there {
            if let Event::Key(key) = event::read()?
                && let Some(wish) = wish_of(key)
            {
                return Ok(Some(wish));
            }
            is_there = event::poll(Duration::ZERO)?;
        }
        Ok(None)
    }
}

impl Drop for LiveTerminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// What a key means. Raw terminals send Ctrl-C as a key.
fn wish_of(key: KeyEvent) -> Option<Wish> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c' | 'd') if is_control => Some(Wish::Stop),
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Wish::Stop),
        _ => None,
    }
}

/// Gives the terminal back if it is taken; may be called any number of times.
fn give_back() {
    if IS_BORROWED.swap(false, Ordering::SeqCst) {
        // A terminal that is gone needs nothing back.
        let _ = execute!(stderr(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

fn give_back_before_a_panic_is_told() {
    static IS_SET: Once = Once::new();
    IS_SET.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            tell(panic);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_control_c_stop_and_other_keys_do_not() {
        let key = |code, modifiers| wish_of(KeyEvent::new(code, modifiers));
        for code in [KeyCode::Char('q'), KeyCode::Char('Q'), KeyCode::Esc] {
            assert_eq!(key(code, KeyModifiers::NONE), Some(Wish::Stop));
        }
        assert_eq!(
            key(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(Wish::Stop)
        );
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Enter, KeyModifiers::NONE), None);
    }
}
