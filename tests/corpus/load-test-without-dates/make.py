"""Sixty requests of a run, six of which were refused, as hey and oha print them."""

from pathlib import Path


def make(folder: Path) -> None:
    hey = [
        "response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,offset"
    ]
    oha = ["request-start,DNS,DNS+dialup,Response-delay,request-duration,bytes,status"]
    for n in range(60):
        took, status = (0.004, 503) if n % 10 == 9 else (2.3, 200)
        hey.append(f"{took:.4f},0.0012,0.0000,0.0001,{took:.4f},0.0002,{status},{n / 2:.4f}")
        oha.append(f"{n / 2:.9f},0.0001,0.001,{took:.9f},{took:.9f},2210,{status}")
    (folder / "hey.csv").write_text("\n".join(hey) + "\n")
    (folder / "oha.csv").write_text("\n".join(oha) + "\n")
