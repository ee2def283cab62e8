"""Reads a table in uops.info's format into a machine model of OSACA, by OSACA's own classes, and lets that model look up
instructions which OSACA's parser reads. OSACA's importer for this format is not part of its package; this does what that
script does with operands, latencies and ports. It skips instructions without ports; here only their operands are read."""

import sys
import xml.etree.ElementTree as ElementTree

from osaca.parser import get_parser
from osaca.parser.immediate import ImmediateOperand
from osaca.parser.memory import MemoryOperand
from osaca.parser.register import RegisterOperand
from osaca.semantics import MachineModel

path, architecture = sys.argv[1:]
parser = get_parser("x86")
model = MachineModel(isa="x86")


def operand(element):
    kind = element.attrib["type"]
    if kind == "imm":
        return ImmediateOperand(imd_type="int", value=1)
    if kind in ("mem", "agen"):
        return MemoryOperand(base="*", offset="*", index="*", scale="*")
    # Each name must be a register of OSACA's parser.
    names = [parser.parse_register("%" + name) for name in element.text.split(",")]
    if None in names:
        raise ValueError(f"no registers of OSACA: {element.text}")
    name = names[0].name
    if parser.is_vector_register(names[0]):
        return RegisterOperand(name=name.rstrip("0123456789").lower())
    return RegisterOperand(name="gpr")


def pressure(measured):
    """Returns the occupation of the ports as the importer does, which evaluates each of these attributes."""
    if float(measured.attrib["TP_ports"]) > min(float(measured.attrib["TP_loop"]), float(measured.attrib["TP_unrolled"])):
        raise ValueError(f"the ports permit less than was measured: {measured.attrib}")
    occupation = [part.split("*") for part in measured.attrib["ports"].split("+")]
    occupation = [[int(cycles), ports.lstrip("p")] for cycles, ports in occupation]
    for port in "".join(ports for _, ports in occupation):
        model.add_port(port)
    return occupation


forms = with_ports = 0
for instruction in ElementTree.parse(path).iterfind(".//instruction"):
    measured = instruction.find(f'architecture[@name="{architecture}"]/measurement')
    mnemonic = instruction.attrib["asm"]
    if measured is None or " " in mnemonic:
        continue
    elements = [one for one in instruction.iterfind("operand") if one.get("suppressed") != "1"]
    assert [int(one.attrib["idx"]) for one in elements] == sorted(int(one.attrib["idx"]) for one in elements)
    operands = [operand(one) for one in elements]
    # In AT&T syntax the destination is last.
    operands.reverse()
    cycles = [int(one.get("cycles") or one.get("max_cycles")) for one in measured.iterfind("latency") if one.get("cycles") or one.get("max_cycles")]
    throughput, ports = float(measured.attrib["TP"]), None
    if "ports" in measured.attrib:
        throughput, ports = float(measured.attrib["TP_ports"]), pressure(measured)
        with_ports += 1
    model.set_instruction(mnemonic, operands, cycles[0] if cycles else None, ports, throughput, int(measured.get("uops", 0)) or None)
    forms += 1

print("forms", forms)
print("with-ports", with_ports)
for line in ["imulq %rax, %rbx", "vaddpd %ymm1, %ymm2, %ymm3"]:
    form = parser.parse_line(line)
    mnemonic = form.mnemonic.upper()
    found = model.get_instruction(mnemonic, form.operands) or model.get_instruction(mnemonic[:-1], form.operands)
    assert found is not None, line
    print(form.mnemonic, found.latency)
    print(f"{form.mnemonic}-ports", found.port_pressure)
