//! `haul top`: queues, workers, running jobs and failures in the terminal, kept fresh.
//!
//! `pages` asks the server what a page shows, `model` decides what a key does, `screen` draws. This file is the loop.

mod model;
mod pages;
mod screen;

use std::time::Duration;

use haul_client::{Move, Range};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use super::failure::{Done, Failure};
use super::output::counted;
use super::session::Session;
use super::value;
use model::{Act, Key, Model, Step};

/// Jobs of a failure group retried by one key.
const RETRY_MAX: u64 = 500;

/// Watch queues, workers, running jobs and failures; pause, retry, cancel
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul top
  haul top --every 10s
  haul top --server 10.0.0.5:4286

Keys: Tab or 1-4 another page, arrows or j k to move, Enter to look closer, Esc back, / filter, s sort, S other way round,
p pause a queue, r retry, x cancel, q quit. What changes something asks first.")]
pub(super) struct Top {
    /// How often to look
    #[arg(long, value_name = "DURATION", value_parser = value::duration, default_value = "2s")]
    every: Duration,
}

impl Top {
    pub(super) async fn run(self, session: &Session) -> Done {
        let mut terminal = ratatui::try_init()?;
        let outcome = self.watch(session, &mut terminal).await;
        ratatui::try_restore()?;
        outcome
    }

    async fn watch(&self, session: &Session, terminal: &mut DefaultTerminal) -> Done {
        let mut keys = read_keys();
        let mut ticks = tokio::time::interval(self.every.max(Duration::from_millis(100)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut model = Model::default();
        loop {
            terminal.draw(|frame| screen::draw(frame, &mut model))?;
            let step = tokio::select! {
                key = keys.recv() => match key {
                    Some(Some(key)) => model.press(key),
                    Some(None) => Step::Draw,
                    None => Step::Quit,
                },
                _ = ticks.tick() => Step::Look,
            };
            match step {
                Step::Draw => {}
                Step::Quit => return Ok(()),
                Step::Look => look(session, &mut model).await,
                Step::Do(act) => {
                    let told = perform(session, &act).await;
                    model.note = told.unwrap_or_else(|failure| said(failure, session));
                    look(session, &mut model).await;
                }
            }
        }
    }
}

/// Keys as they are pressed; `None` is a resize. A thread of its own, because reading them blocks.
fn read_keys() -> mpsc::Receiver<Option<Key>> {
    let (sender, receiver) = mpsc::channel(64);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let told = match event {
                Event::Key(key) if key.kind != KeyEventKind::Release => key_of(key).map(Some),
                Event::Resize(..) => Some(None),
                _ => None,
            };
            if let Some(told) = told
                && sender.blocking_send(told).is_err()
            {
                return;
            }
        }
    });
    receiver
}

fn key_of(key: KeyEvent) -> Option<Key> {
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Interrupt,
        KeyCode::Char(letter) => Key::Letter(letter),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Enter | KeyCode::Right => Key::Enter,
        KeyCode::Esc | KeyCode::Left => Key::Back,
        KeyCode::Backspace => Key::Erase,
        KeyCode::Tab => Key::Tab,
        _ => return None,
    })
}

/// What a failure says, in a line.
fn said(failure: Failure, session: &Session) -> String {
    failure.told(&session.address).map_or_else(String::new, |told| told.text(false).replace('\n', " "))
}

async fn look(session: &Session, model: &mut Model) {
    match pages::fetch(session, model.page()).await {
        Ok(content) => model.show(content),
        Err(failure) => model.note = said(failure, session),
    }
}

async fn perform(session: &Session, act: &Act) -> Result<String, Failure> {
    match act {
        Act::Pause(queue) => session.client.pause([queue]).await.map(|()| format!("{queue} is paused")),
        Act::Unpause(queue) => session.client.unpause([queue]).await.map(|()| format!("{queue} goes on")),
        Act::Cancel(jid) => {
            session.client.cancel([jid]).await.map(|count| format!("{} cancelled", counted(count, "job")))
        }
        Act::Retry(jid) => return retry(session, std::slice::from_ref(jid)).await,
        Act::RetryGroup(group) => {
            let failed = session.client.failed(group, Range { offset: 0, count: RETRY_MAX }).await?;
            return retry(session, &failed.jobs).await;
        }
    }
    .map_err(Failure::Call)
}

/// Each back into the queue it is in, or was.
async fn retry(session: &Session, jids: &[String]) -> Result<String, Failure> {
    let mut count = 0;
    for job in session.jobs(jids).await? {
        if let Some(queue) = pages::queue_of(&job) {
            session.client.move_job(&Move::new(job.jid.clone(), queue)).await?;
            count += 1;
        }
    }
    Ok(format!("{} put back", counted(count, "job")))
}
