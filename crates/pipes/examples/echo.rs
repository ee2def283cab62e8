//! Sends packets back to a NIC in another process: echo SOCKET PIPES

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use stream::host::{Device, NicClosed, Sizes};
use stream::nic::InterfaceConfig;
use stream::nic::pipes::Notify;
use stream::nic::remote::Connection;
use stream::wire::Flow;

fn echo(socket: &Path, pipes: u32) -> Result<u64, Box<dyn Error>> {
    let sizes = Sizes::default();
    let (ring, notifications) = (sizes.ring, sizes.notifications);
    let config = InterfaceConfig::Pipes { notify: Notify::Reactively, ring, notifications };
    let nic = Connection::open(socket, config)?;
    // Each thread has a separate device.
    let device = Device::new(&nic.port(), sizes)?;
    let mut pipes = (0..pipes)
        .map(|index| {
            let mut pipe = device.rx_tx_pipe()?;
            // One pipe per address, from 192.168.0.0.
            pipe.bind(Flow {
                destination: (0xc0a8_0000 + index).into(),
                destination_port: 80,
                source: 0.into(),
                source_port: 0,
                protocol: 17,
            })?;
            Ok(pipe)
        })
        .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    nic.ready()?;
    let mut echoed = 0;
    loop {
        let Some(index) = device.next() else {
            if nic.is_closed() {
                return Ok(echoed);
            }
            continue;
        };
        let pipe = &mut pipes[index];
        let mut packets = pipe.recv().packets();
        for packet in &mut packets {
            packet[43] = packet[43].wrapping_add(1); // the generator expects this change
            echoed += 1;
        }
        let bytes = packets.processed();
        match pipe.send_and_free(bytes) {
            Ok(()) => {}
            Err(NicClosed) => return Ok(echoed),
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let [_, socket, pipes] = &words[..] else {
        eprintln!("usage: echo SOCKET PIPES");
        return ExitCode::from(2);
    };
    match echo(Path::new(socket), pipes.parse().unwrap_or(1)) {
        Ok(echoed) => println!("echoed {echoed} packets"),
        Err(why) => {
            eprintln!("error: {why}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
