"""What is in an installation, and under which licences? A CycloneDX 1.6 document of the locked dependencies: `python -m tests.sbom OUT`, or `make sbom`.

Names, versions, checksums and who needs whom come from requirements.lock; licences from the metadata of the installed packages. A package that the lock has
for another platform is listed without its licence.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections import defaultdict
from importlib import metadata
from pathlib import Path
from typing import Any

from overrun import __version__

ROOT = Path(__file__).parents[1]
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)")
_EXPRESSION = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)+")


def locked(text: str) -> dict[str, dict[str, Any]]:
    """Name -> version, sha256 checksums and the names of those that need it, of a lock file."""
    out: dict[str, dict[str, Any]] = {}
    entry: dict[str, Any] = {}
    for line in text.splitlines():
        pin = _PIN.match(line)
        if pin:
            entry = out.setdefault(
                _name(pin[1]), {"version": pin[2], "sha256": [], "needed_by": []}
            )
        entry.get("sha256", []).extend(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
        of = re.match(r"^ +#(?: via| {2,})(?P<who>.*)$", line)
        if of and of["who"].strip():
            entry["needed_by"].append(_name(of["who"].split("(")[0].strip()))
    return out


def _name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def licences(name: str) -> list[dict[str, Any]]:
    """CycloneDX `licenses` of an installed package: an SPDX expression if it declares one, else the names of its classifiers or its licence field."""
    try:
        found = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    expression = found.get("License-Expression")
    if expression:
        return [{"expression": expression}]
    names = [
        c.rsplit(" :: ", 1)[-1]
        for c in found.get_all("Classifier") or []
        if c.startswith("License ::") and c != "License :: OSI Approved"
    ]
    text = (found.get("License") or "").strip().splitlines()
    if not names and text and _EXPRESSION.fullmatch(text[0]):
        return [{"expression": text[0]}]
    return [{"license": {"name": name}} for name in names or text[:1] if name]


def document(lock: str) -> dict[str, Any]:
    """The CycloneDX document; the same lock and installation give the same one."""
    found = locked(lock)
    needs: dict[str, list[str]] = defaultdict(list)
    components = []
    for name, entry in sorted(found.items()):
        purl = f"pkg:pypi/{name}@{entry['version']}"
        component = {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": entry["version"],
            "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in entry["sha256"]],
        }
        if of := licences(name):
            component["licenses"] = of
        components.append(component)
        for other in entry["needed_by"]:
            needs[other].append(purl)
    own = f"pkg:pypi/overrun@{__version__}"
    refs = {name: f"pkg:pypi/{name}@{entry['version']}" for name, entry in found.items()} | {
        "overrun": own
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, lock)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "overrun",
                "version": __version__,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
        "dependencies": [
            {"ref": ref, "dependsOn": sorted(set(needs[name]))}
            for name, ref in sorted(refs.items())
        ],
    }


def main(out: Path) -> None:
    """Write the document of requirements.lock, and print which packages declare no licence here."""
    made = document((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    silent = [c["name"] for c in made["components"] if "licenses" not in c]
    print(f"{out}: {len(made['components'])} packages", end="")
    print(f"; no licence is known here of {', '.join(silent)}" if silent else "")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist/sbom.cdx.json"))
