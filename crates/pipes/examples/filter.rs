//! Sends packets to even addresses back to a NIC in another process, and drops others: filter SOCKET

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use applications::application::Count;
use applications::{Application, Decision};
use stream::host::{NicClosed, Sizes};
use stream::nic::InterfaceConfig;
use stream::nic::pipes::Notify;
use stream::nic::remote::Connection;
use stream::serve::{PipesServer, Server};
use stream::steering::CorePipes;

#[derive(Default)]
struct Filter {
    sent: u64,
    dropped: u64,
}

impl Application for Filter {
    #[inline(always)]
    fn process<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a mut [u8]>,
        mut done: impl FnMut(&'a mut [u8], Decision),
    ) {
        for packet in packets {
            // The last byte of the IPv4 destination address.
            if packet[33].is_multiple_of(2) {
                packet[43] = packet[43].wrapping_add(1); // the generator expects this change
                self.sent += 1;
                done(packet, Decision::Send);
            } else {
                self.dropped += 1;
                done(packet, Decision::Consume);
            }
        }
    }

    fn counts(&self) -> Vec<Count> {
        let count = |name, value| Count { name, value };
        vec![count("sent-packets", self.sent), count("dropped-packets", self.dropped)]
    }
}

fn filter(socket: &Path) -> Result<Filter, Box<dyn Error>> {
    let sizes = Sizes::default();
    let (ring, notifications) = (sizes.ring, sizes.notifications);
    let config = InterfaceConfig::Pipes { notify: Notify::Reactively, ring, notifications };
    let nic = Connection::open(socket, config)?;
    // One pipe on one core. With rules, `CorePipes::per_flow` has one pipe per flow.
    let mut server = PipesServer::new(&nic.port(), sizes, &CorePipes::of_all_flows(), false)?;
    nic.ready()?;
    let mut filter = Filter::default();
    loop {
        match server.poll(&mut filter) {
            Ok(0) if nic.is_closed() => return Ok(filter),
            Ok(_) => {}
            Err(NicClosed) => return Ok(filter),
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let [_, socket] = &words[..] else {
        eprintln!("usage: filter SOCKET");
        return ExitCode::from(2);
    };
    match filter(Path::new(socket)) {
        Ok(filter) => {
            for Count { name, value } in filter.counts() {
                println!("{name} {value}");
            }
        }
        Err(why) => {
            eprintln!("error: {why}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
