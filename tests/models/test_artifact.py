"""A folder loads exactly as it was written, or not at all."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from overrun.models.artifact import MANIFEST, MAX_BYTES, SCHEMA, load_artifact, write_artifact
from overrun.models.errors import ArtifactError
from overrun.models.onnx_graph import check_trees
from overrun.models.predict import Predictor
from overrun.models.train import TrainReport

FILES = (
    "card.html",
    "card.json",
    "conformal.json",
    "golden.jsonl",
    "history.json",
    "manifest.json",
    *(
        f"model_{quantile}.{kind}"
        for quantile in ("p10", "p50", "p90", "p99")
        for kind in ("json", "onnx", "ubj")
    ),
)


@pytest.fixture
def folder(small_report: TrainReport, tmp_path: Path) -> Path:
    """Copy a good artifact, to be damaged."""
    return Path(shutil.copytree(small_report.folder, tmp_path / "artifact"))


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest and make its hashes right again, as a wrong exporter would."""
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    for name, entry in manifest["files"].items():
        if (folder / name).is_file():
            data = (folder / name).read_bytes()
            entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    body = {key: value for key, value in manifest.items() if key != "version"}
    manifest["version"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:12]
    (folder / MANIFEST).write_text(json.dumps(manifest))


def keep(manifest: dict[str, Any]) -> None:
    """Change nothing but the hashes."""


def test_an_artifact_holds_these_files_and_no_pickle(folder: Path) -> None:
    assert tuple(sorted(path.name for path in folder.iterdir())) == FILES
    assert not any(
        path.read_bytes().startswith(b"\x80") and path.suffix != ".ubj" for path in folder.iterdir()
    )


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused_by_name(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ArtifactError, match=rf"{name} cannot be read .*: train the artifact again"):
        Predictor.load(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_refused_by_name(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(ArtifactError, match=rf"{name} is (damaged|not JSON)"):
        Predictor.load(folder)


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=st.sampled_from(FILES), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_one_flipped_bit_is_noticed_anywhere(
    folder: Path, name: str, where: float, bit: int
) -> None:
    path = folder / name
    good = path.read_bytes()
    bad = bytearray(good)
    bad[int(where * len(bad))] ^= 1 << bit
    path.write_bytes(bytes(bad))
    try:
        loaded = load_artifact(folder)
    except ArtifactError:
        pass
    else:
        # White space of the manifest may change without changing what it says.
        assert name == MANIFEST
        assert loaded.manifest == json.loads(good)
    finally:
        path.write_bytes(good)


def test_another_schema_is_named_before_anything_else(folder: Path) -> None:
    (folder / MANIFEST).write_text(json.dumps({"schema": "overrun.predictor/9"}))
    with pytest.raises(
        ArtifactError, match=rf"has schema 'overrun\.predictor/9', this build reads '{SCHEMA}'"
    ):
        Predictor.load(folder)


def test_a_changed_manifest_is_refused(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace('"skill": "none"', '"skill": "good"'))
    with pytest.raises(ArtifactError, match="was changed after it was written"):
        Predictor.load(folder)


@pytest.mark.parametrize("text", ["[]", "null", '{"schema": "overrun.predictor/1"}', "\x00"])
def test_a_manifest_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / MANIFEST).write_text(text)
    with pytest.raises(ArtifactError, match=r"holds|lacks|is not JSON"):
        Predictor.load(folder)


def test_a_model_that_answers_differently_than_when_trained_is_refused(folder: Path) -> None:
    shutil.copyfile(folder / "model_p90.onnx", folder / "model_p50.onnx")
    rewrite(folder, keep)
    with pytest.raises(
        ArtifactError,
        match=r"model_p50\.onnx answers the golden vectors .* expected at most 0\.0001",
    ):
        Predictor.load(folder)


def test_a_model_that_is_no_onnx_is_refused(folder: Path) -> None:
    (folder / "model_p50.onnx").write_bytes(b"not a model")
    rewrite(folder, keep)
    with pytest.raises(ArtifactError, match=r"model_p50\.onnx does not open as a model"):
        Predictor.load(folder)


def with_zeros(model: onnx.ModelProto) -> None:
    """Ask for 8 GB of zeros beside the trees."""
    (trees,) = model.graph.node
    trees.output[0] = "answer"
    model.graph.initializer.append(numpy_helper.from_array(np.array([1 << 31]), "size"))
    model.graph.node.extend(
        [
            helper.make_node("ConstantOfShape", ["size"], ["zeros"]),
            helper.make_node("ReduceSum", ["zeros"], ["sum"], keepdims=0),
            helper.make_node("Add", ["answer", "sum"], ["variable"]),
        ]
    )


def with_zeros_alone(model: onnx.ModelProto) -> None:
    model.graph.node[0].CopyFrom(helper.make_node("ConstantOfShape", ["features"], ["variable"]))


def with_another_domain(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "com.example"


def with_a_tensor_elsewhere(model: onnx.ModelProto) -> None:
    """Weights that lie in another file of the machine."""
    tensor = numpy_helper.from_array(np.zeros(3, np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/hostname")
    model.graph.initializer.append(tensor)


def with_a_function(model: onnx.ModelProto) -> None:
    """A body of its own for the operator of the trees."""
    zeros = helper.make_node("ConstantOfShape", ["features"], ["variable"])
    opsets = [helper.make_opsetid("", 17)]
    model.functions.append(
        helper.make_function(
            "ai.onnx.ml", "TreeEnsembleRegressor", ["features"], ["variable"], [zeros], opsets
        )
    )


def with_a_graph_inside(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.add(
        name="body", type=onnx.AttributeProto.GRAPH, g=onnx.GraphProto()
    )


@pytest.mark.parametrize(
    "change",
    [
        with_zeros,
        with_zeros_alone,
        with_another_domain,
        with_a_tensor_elsewhere,
        with_a_function,
        with_a_graph_inside,
    ],
)
def test_a_model_that_is_more_than_trees_is_refused_unopened(
    folder: Path, change: Callable[[onnx.ModelProto], None]
) -> None:
    """Opened by onnxruntime, the first takes 8 GB or hangs."""
    model = onnx.load_from_string((folder / "model_p50.onnx").read_bytes())
    change(model)
    (folder / "model_p50.onnx").write_bytes(model.SerializeToString())
    rewrite(folder, keep)
    with pytest.raises(ArtifactError, match=r"model_p50.onnx .*expected one TreeEnsembleRegressor"):
        Predictor.load(folder)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200))
def test_bytes_that_are_no_trees_are_refused_with_a_sentence(data: bytes) -> None:
    with pytest.raises(ArtifactError, match="does not open as a model"):
        check_trees(data, "model")


def test_a_feature_this_build_does_not_know_is_refused(folder: Path) -> None:
    rewrite(folder, lambda manifest: manifest["features"].append("gpu_mood"))
    with pytest.raises(ArtifactError, match=r"wants the features .*gpu_mood.*upgrade"):
        Predictor.load(folder)


def change_golden(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    lines = [json.loads(line) for line in (folder / "golden.jsonl").read_text().splitlines()]
    for line in lines:
        change(line)
    (folder / "golden.jsonl").write_text("\n".join(map(json.dumps, lines)))
    rewrite(folder, keep)


def test_golden_vectors_of_another_shape_are_refused(folder: Path) -> None:
    rewrite(folder, lambda manifest: manifest["features"].pop())
    change_golden(folder, lambda line: line["inputs"].pop())
    with pytest.raises(ArtifactError, match="does not open as a model"):
        Predictor.load(folder)


def test_a_golden_answer_that_differs_by_more_than_the_tolerance_is_refused(folder: Path) -> None:
    def move(line: dict[str, Any]) -> None:
        line["expected"]["p99"] += 2e-4

    change_golden(folder, move)
    with pytest.raises(
        ArtifactError, match=r"model_p99\.onnx answers the golden vectors 0\.0002 log tokens away"
    ):
        Predictor.load(folder)


@pytest.mark.parametrize("text", ["", "{}", '{"inputs": [[1]], "expected": {}}', "[1]"])
def test_golden_vectors_that_are_none_are_refused(folder: Path, text: str) -> None:
    (folder / "golden.jsonl").write_text(text)
    rewrite(folder, keep)
    with pytest.raises(ArtifactError, match="holds no golden vectors"):
        Predictor.load(folder)


def test_an_unreadable_calibration_is_refused(folder: Path) -> None:
    (folder / "conformal.json").write_text("{}")
    rewrite(folder, keep)
    with pytest.raises(ArtifactError, match="the calibration is not readable"):
        Predictor.load(folder)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", ".hidden", "a\\b"])
def test_a_manifest_cannot_name_files_elsewhere(folder: Path, name: str) -> None:
    rewrite(folder, lambda manifest: manifest["files"].update({name: {"bytes": 1, "sha256": ""}}))
    with pytest.raises(ArtifactError, match="expected a plain file name"):
        load_artifact(folder)


def test_a_manifest_that_forgets_a_file_is_refused(folder: Path) -> None:
    rewrite(folder, lambda manifest: manifest["files"].pop("golden.jsonl"))
    with pytest.raises(ArtifactError, match=r"does not list golden\.jsonl"):
        load_artifact(folder)


def test_a_history_without_outputs_is_refused(folder: Path) -> None:
    (folder / "history.json").write_text('{"salt": "", "windows": []}')
    rewrite(folder, keep)
    with pytest.raises(ArtifactError, match="holds no outputs"):
        Predictor.load(folder)


def test_an_oversized_file_is_not_even_read(folder: Path) -> None:
    with (folder / MANIFEST).open("r+b") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ArtifactError, match="expected at most 2,000,000"):
        load_artifact(folder)


def test_no_folder_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is not a folder"):
        Predictor.load(tmp_path / "absent")


def good_files() -> dict[str, bytes]:
    models = {f"model_{quantile}.onnx": b"x" for quantile in ("p10", "p50", "p90", "p99")}
    return {"golden.jsonl": b"{}\n", "history.json": b"[]\n", "conformal.json": b"{}\n"} | models


MANIFEST_BODY = {"features": [], "quantiles": {"p50": {}}, "routes": [], "bucket_edges": [64, 256]}


def test_writing_replaces_an_older_artifact_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "new" / "artifact"
    first = write_artifact(target, MANIFEST_BODY, good_files(), check=load_artifact)
    second = write_artifact(
        target, MANIFEST_BODY, good_files() | {"model_p50.onnx": b"y"}, check=load_artifact
    )
    assert first.version != second.version
    assert load_artifact(target).files["model_p50.onnx"] == b"y"
    assert [path.name for path in target.parent.iterdir()] == ["artifact"]


def test_an_artifact_that_fails_its_check_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "artifact"
    old = write_artifact(target, MANIFEST_BODY, good_files(), check=load_artifact)
    with pytest.raises(ArtifactError):
        write_artifact(
            target, MANIFEST_BODY, good_files() | {"history.json": b"[1]\n"}, check=Predictor.load
        )
    assert load_artifact(target).version == old.version
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]


def test_a_folder_with_other_things_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(
        ArtifactError, match="is not a predictor artifact, expected a new or empty folder"
    ):
        write_artifact(tmp_path, MANIFEST_BODY, good_files(), check=load_artifact)
    with pytest.raises(ArtifactError, match="is not a predictor artifact"):
        write_artifact(tmp_path / "thesis.txt", MANIFEST_BODY, good_files(), check=load_artifact)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_more_than_the_promised_size_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="expected at most 2,000,000"):
        write_artifact(
            tmp_path / "a",
            MANIFEST_BODY,
            good_files() | {"big": bytes(MAX_BYTES)},
            check=load_artifact,
        )
    assert not (tmp_path / "a").exists()


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ArtifactError, match=r"cannot be written .*: choose another --out"):
        write_artifact(
            tmp_path / "file" / "artifact", MANIFEST_BODY, good_files(), check=load_artifact
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(files=[]), "does not list bytes"),
        (lambda m: m.update(files={"card.json": 5}), "does not list bytes"),
        (lambda m: m["files"].update({"a\0b": {"bytes": 1, "sha256": ""}}), "plain file name"),
    ],
)
def test_a_manifest_that_lists_no_files_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    body = {key: value for key, value in manifest.items() if key != "version"}
    manifest["version"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:12]
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match=said):
        load_artifact(folder)


@pytest.mark.parametrize("name", [MANIFEST, "history.json"])
def test_pipes_and_devices_are_refused_at_once(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ArtifactError, match="is not a regular file"):
        load_artifact(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(ArtifactError, match="is not a regular file"):
        load_artifact(folder)


def test_json_that_is_nested_too_deeply_is_refused(folder: Path) -> None:
    (folder / MANIFEST).write_bytes(b"[" * 200_000 + b"]" * 200_000)
    with pytest.raises(ArtifactError, match="is not JSON"):
        load_artifact(folder)


def test_many_files_are_bounded_together(folder: Path) -> None:
    (folder / "more0").write_bytes(b"x" * (MAX_BYTES * 3 // 4))
    for number in range(1, 5):
        os.link(folder / "more0", folder / f"more{number}")
    rewrite(folder, lambda m: m["files"].update({f"more{n}": {} for n in range(5)}))
    with pytest.raises(ArtifactError, match="in the folder"):
        load_artifact(folder)
