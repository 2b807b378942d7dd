"""Model directories that try to run, open, import or write something when they are loaded: nothing of it happens."""

from __future__ import annotations

import base64
import io
import json
import os
import sys
import zipfile

import numpy as np
import pytest
import sklearn
import skops.io
from click.testing import CliRunner
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.tree import DecisionTreeClassifier

import histnetq as hq
from histnetq.cli import main
from tests.conftest import labelled, types_to_trust
from tests.persistence.test_tampered import forge, stored

MARKER = "histnetq_payload_marker"  # a module on the path of imports, which tells that it was imported
EVENTS: list[str] = []
WATCHED = {
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen", "os.remove",
    "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.putenv", "os.kill", "socket.connect",
    "socket.getaddrinfo", "shutil.rmtree", "pty.spawn", "webbrowser.open", "urllib.Request", "pickle.find_class",
    "marshal.loads", "code.__new__", "ctypes.dlopen",
}  # fmt: skip
_watching = False


def _watch(event, args):
    if not _watching:
        return
    writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if event in WATCHED or writes or (event == "import" and MARKER in str(args[0])):
        EVENTS.append(f"{event} {args}")


sys.addaudithook(_watch)


def node(loader, name, **content):
    module, _, attribute = name.rpartition(".")
    return {"__loader__": loader, "__module__": module, "__class__": attribute, **content}


def text(value):
    return node("JsonNode", "builtins.str", content=json.dumps(value), is_json=True)


def several(*nodes, loader="TupleNode", name="builtins.tuple"):
    return node(loader, name, content=list(nodes))


def mapping(loader="DictNode", name="builtins.dict", key="builtins.str", **nodes):
    keys = several(*(node("TypeNode", key) for _ in nodes), loader="ListNode", name="builtins.list")
    return node(loader, name, content=nodes, key_types=keys)


def call(name, *args):
    """What skops makes by calling a type or function with arguments."""
    return node("ConstructorFromReduceNode", name, content=several(*args))


def thing(name, **attributes):
    """What skops makes without a constructor."""
    return node("ObjectNode", name, content=mapping(**attributes))


def reduced(loader, name, *args):
    return node(loader, name, content=mapping(), __reduce__={"args": several(*args)})


def partial(function):
    parts = {"func": function, "args": several(), "kwds": mapping(), "namespace": mapping()}
    return node("PartialNode", "functools.partial", content=parts)


LOGISTIC = "sklearn.linear_model._logistic.LogisticRegression"
PIPELINE = "sklearn.pipeline.Pipeline"
RUN, FILE = text("touch ran"), text("victim.txt")
SYSTEM = node("FunctionNode", "posix.system")

PARTS = {
    "os.system as a constructor": call("os.system", RUN),
    "posix.system as a constructor": call("posix.system", RUN),
    "subprocess.Popen": call("subprocess.Popen", text(["touch", "ran"])),
    "subprocess.run by another name": call("sklearn.utils._testing.subprocess.run", RUN),
    "builtins.eval": call("builtins.eval", text("__import__('os').system('touch ran')")),
    "builtins.exec": call("builtins.exec", text("open('victim.txt', 'w')")),
    "builtins.open": call("builtins.open", FILE, text("w")),
    "builtins.__import__": call("builtins.__import__", text(MARKER)),
    "importlib.import_module": call("importlib.import_module", text(MARKER)),
    "groupby of a module of scikit-learn": call("sklearn.utils._testing.groupby", several(RUN), SYSTEM),
    "map over os.system": call("builtins.map", SYSTEM, several(RUN)),
    "filter over os.system": call("builtins.filter", SYSTEM, several(RUN)),
    "attrgetter of a module of scikit-learn": call("sklearn.feature_selection._base.attrgetter", text("system")),
    "Path of a module of scikit-learn": call("sklearn.datasets._base.Path", FILE),
    "GzipFile of a module of scikit-learn": call("sklearn.datasets._base.GzipFile", FILE, text("wb")),
    "gzip.GzipFile": call("gzip.GzipFile", FILE, text("wb")),
    "zipfile.ZipFile": call("zipfile.ZipFile", FILE, text("w")),
    "tarfile.TarFile": call("tarfile.TarFile", FILE, text("w")),
    "io.FileIO": call("_io.FileIO", FILE, text("w")),
    "codecs.open": call("codecs.open", FILE, text("w")),
    "logging.FileHandler": call("logging.FileHandler", FILE, text("w")),
    "sqlite3.Connection": call("sqlite3.Connection", text("ran")),
    "numpy.memmap": call("numpy.memmap", FILE, text("uint8"), text("w+"), text(0), text([1])),
    "numpy.load by a name of numpy": call("numpy.load", FILE),
    "numpy.fromfile": call("numpy.fromfile", FILE),
    "ctypes.CDLL": call("ctypes.CDLL", text("libc.so.6")),
    "tempfile.NamedTemporaryFile": call("tempfile.NamedTemporaryFile"),
    "a socket": call("socket.create_connection", text(["127.0.0.1", 9])),
    "the module itself": call(f"{MARKER}.Anything"),
    "an object of the module": thing(f"{MARKER}.Anything"),
    "a type of the module": node("TypeNode", f"{MARKER}.Anything"),
    "a function of the module": node("FunctionNode", f"{MARKER}.anything"),
    "a key of the module's type": mapping(key=f"{MARKER}.Anything", ran=text(1)),
    "keys made by os.system": node("DictNode", "builtins.dict", content={"touch ran": text(1)},
                                   key_types=several(node("TypeNode", "posix.system"))),
    "a dictionary of the module": mapping(name=f"{MARKER}.Anything"),
    "a list of the module": several(RUN, loader="ListNode", name=f"{MARKER}.Anything"),
    "a set of the module": several(RUN, loader="SetNode", name=f"{MARKER}.Anything"),
    "a named tuple of the module": several(RUN, name=f"{MARKER}.Anything"),
    "a number of the module": node("NdArrayNode", f"{MARKER}.Anything", type="numpy", file="numbers.npy"),
    "an array of objects with a call in it": node("NdArrayNode", "numpy.ndarray", type="json",
                                                  content=[call("os.system", RUN)], shape=several(text(1))),
    "os.system as a function": SYSTEM,
    "a partial of os.system": partial(SYSTEM),
    "a method of a path": node("MethodNode", "pathlib.Path",
                               content={"func": "touch", "obj": call("pathlib.Path", text("ran"))}),
    "operator.methodcaller": node("OperatorFuncNode", "operator.methodcaller", attrs=several(text("system"), RUN)),
    "operator.attrgetter": node("OperatorFuncNode", "operator.attrgetter", attrs=several(text("__class__"))),
    "operator.call": node("OperatorFuncNode", "operator.call", attrs=several(SYSTEM, RUN)),
    "a default of a dictionary": node("DefaultDictNode", "collections.defaultdict",
                                      content={"main": mapping(), "default_factory": SYSTEM}),
    "a loss by os.system": reduced("LossNode", "posix.system", RUN),
    "a loss of the module": reduced("LossNode", f"{MARKER}.Anything", RUN),
    "a tree of the module": reduced("TreeNode", f"{MARKER}.Tree", RUN),
    "a tree of scikit-learn": reduced("TreeNode", "sklearn.tree._tree.Tree", text(1)),
    "a forest of skops": reduced("QuantileForestNode", "quantile_forest._quantile_forest_fast.QuantileForest", RUN),
    "a random generator of the module": node("RandomGeneratorNode", f"{MARKER}.Anything", content={
        "bit_generator": mapping(bit_generator=text("system"))}),
    "a random state of the module": node("RandomStateNode", f"{MARKER}.Anything", content=mapping()),
    "a class that unpickles": thing("sklearn.externals.joblib.numpy_pickle.NumpyUnpickler"),
    "a remote object of a test module": thing("sklearn.utils._testing.TempMemmap", mmap_mode=text("w+")),
    "a loader that there is none of": node("PickleNode", LOGISTIC, content=text("cos\nsystem\n")),
    "a type with a dot in its name": node("ObjectNode", LOGISTIC) | {"__module__": "sklearn",
                                                                     "__class__": "linear_model.os.system"},
    "a type that is no text": node("ObjectNode", LOGISTIC) | {"__module__": ["os"], "__class__": 7},
}  # fmt: skip
HIDDEN_IN = {
    "alone": lambda part: part,
    "as a step of a pipeline": lambda part: thing(
        PIPELINE, steps=several(several(text("x"), part), loader="ListNode", name="builtins.list"), memory=text(None)
    ),
    "as an attribute of a regression": lambda part: thing(LOGISTIC, C=text(1.0), coef_=part, classes_=text([0, 1])),
}


def numpy_file(content=None):
    file = io.BytesIO()
    np.save(file, np.zeros(2) if content is None else content, allow_pickle=content is not None)
    return file.getvalue()


def skops_file(root, compression=zipfile.ZIP_STORED, **members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("schema.json", json.dumps(root | {"protocol": 2, "_skops_version": "0.16.0"}))
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A model whose loading imports all that loading may import."""
    place = tmp_path_factory.mktemp("original") / "model"
    q = hq.CC(LogisticRegression(class_weight={0: 1.0, 1: 1.0, 2: 1.0}), random_state=0).fit(*labelled())
    q.save(place)
    assert stored(place)[0]["learned"]["classifier"] is None, "stored in the format of skops"
    hq.load(place)
    return place


@pytest.fixture
def place(original, tmp_path, monkeypatch):
    """A directory with a copy of the model, a file that might be overwritten, and a module that might be imported."""
    for path in original.iterdir():
        (tmp_path / "model").mkdir(exist_ok=True)
        (tmp_path / "model" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "victim.txt").write_text("precious")
    (tmp_path / f"{MARKER}.py").write_text("open('ran', 'w').close()\nAnything = anything = Tree = list\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(place, trust=()):
    """Load and show a model, both of which must refuse or ignore the payload; nothing may happen."""
    global _watching
    before = sorted(path.name for path in place.rglob("*"))
    EVENTS.clear()
    told = ""
    _watching = True
    try:
        hq.load(place / "model", trust=trust)
    except (ValueError, OSError) as error:
        told = str(error)
    finally:
        _watching = False
    shown = CliRunner().invoke(main, ["info", str(place / "model")])
    assert isinstance(shown.exception, SystemExit | None)
    assert EVENTS == []
    assert MARKER not in sys.modules
    assert (place / "victim.txt").read_text() == "precious"
    assert sorted(path.name for path in place.rglob("*")) == before
    assert told, "loaded in silence"
    assert "\n" not in told
    return told


def put_in(place, content, where="arrays"):
    config, arrays = stored(place / "model")
    if where == "arrays":
        forge(place / "model", config, arrays | {"classifier": np.frombuffer(content, np.uint8)})
    else:
        config["params"]["classifier"] = {"skops": base64.b64encode(content).decode()}
        forge(place / "model", config)


def test_the_hook_sees_what_it_should(place):
    global _watching
    EVENTS.clear()
    _watching = True
    os.system("true")
    (place / "made").write_text("x")
    with pytest.raises(ImportError):
        __import__(f"{MARKER}_that_is_not_there")
    _watching = False
    assert [event.split()[0] for event in EVENTS] == ["os.system", "open", "import"]


@pytest.mark.parametrize("hidden", HIDDEN_IN)
@pytest.mark.parametrize("part", PARTS)
def test_parts_of_a_classifier_do_nothing(place, part, hidden):
    put_in(place, skops_file(HIDDEN_IN[hidden](PARTS[part]), numbers=numpy_file()))
    told = refused(place, trust=["sklearn.svm._classes.SVC", "posix.system", "builtins.eval"])
    assert told.startswith("path: the stored classifier ")


@pytest.mark.parametrize("part", list(PARTS)[::6])
def test_parts_of_an_unfitted_classifier_do_nothing(place, part):
    put_in(place, skops_file(PARTS[part], numbers=numpy_file()), where="params")
    assert refused(place).startswith("path: the stored classifier ")


def deep(levels):
    return '{"protocol": 2, "a": ' * levels + "1" + "}" * levels


def lying_zip():
    content = bytearray(skops_file(thing(LOGISTIC)))
    at = content.rindex(b"PK\x01\x02")
    content[at + 24 : at + 28] = (1 << 30).to_bytes(4, "little")
    return bytes(content)


def doubled_zip():
    file = io.BytesIO(skops_file(thing(LOGISTIC)))
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("schema.json", json.dumps(call("os.system", RUN) | {"protocol": 2}))
    return file.getvalue()


def raw_zip(schema):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("schema.json", schema)
    return file.getvalue()


def huge_array():
    content = numpy_file()
    return content.replace(b"(2,), }" + b" " * 12, b"(2000000000000,), }")


ARRAY = node("NdArrayNode", "numpy.ndarray", type="numpy", file="numbers.npy")
FILES = {
    "no zip file": lambda: b"cos\nsystem\n(S'touch ran'\ntR.",
    "a pickle": lambda: b"\x80\x04\x95\x1e\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "no schema": lambda: skops_file({})[:40],
    "a schema of 10,000 levels": lambda: raw_zip(deep(10000)),
    "a schema that is a list": lambda: raw_zip("[]"),
    "a schema of an old protocol with a function": lambda: raw_zip(json.dumps(
        {"protocol": 0, **node("FunctionNode", "posix.system", content={"function": "system", "module_path": "os"})})),
    "a compressed bomb": lambda: skops_file(thing(LOGISTIC), zipfile.ZIP_DEFLATED, numbers=bytes(10**7)),
    "a size that is a lie": lying_zip,
    "two schemas": doubled_zip,
    "an array of pickled objects": lambda: skops_file(thing(LOGISTIC, coef_=ARRAY),
                                                      numbers=numpy_file(np.array([{"a": 1}], object))),
    "an array larger than memory": lambda: skops_file(thing(LOGISTIC, coef_=ARRAY), numbers=huge_array()),
    "a file outside": lambda: skops_file(thing(LOGISTIC, coef_=ARRAY | {"file": "../../victim.txt"})),
    "a pipeline with a cache of pickles": lambda: skops.io.dumps(
        Pipeline([("x", LogisticRegression(class_weight={0: 1.0}))], memory="cache")
    ),
    "an object that holds itself": lambda: skops_file(thing(LOGISTIC, coef_={
        "__loader__": "CachedNode", "__module__": "x", "__class__": "y", "__id__": 5}) | {"__id__": 5}),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_files_of_a_classifier_do_nothing(place, kind):
    put_in(place, FILES[kind]())
    assert refused(place).startswith("path: the stored classifier is damaged")


@pytest.mark.filterwarnings("ignore:Trying to unpickle")
def test_a_classifier_of_another_scikit_learn_is_told(place):
    put_in(place, skops_file(thing(LOGISTIC, _sklearn_version=text("99.1.0"))))
    told = refused(place)
    start = "path: the stored classifier was written by scikit-learn 99.1.0, expected one that the installed "
    end = "; install scikit-learn 99.1.0, or fit the model again."
    assert told.startswith(f"{start}{sklearn.__version__} can read (")
    assert told.endswith(end)
    better = "sklearn.linear_model._better.Better"
    put_in(place, skops_file(thing(better, _sklearn_version=text("99.1.0"))))
    assert refused(place, trust=[better]) == f"{start}{sklearn.__version__} can read ({better} is not there){end}"
    put_in(place, skops_file(thing(better)))
    assert refused(place, trust=[better]).startswith(f"trust: {better} is not a class that is defined there")


@pytest.mark.filterwarnings("ignore:Trying to unpickle")
@pytest.mark.parametrize(
    "told",
    [text("99.1; pip install x"), text(["99.1"]), text("9" * 9999), text("\n99.1"), mapping(), call("os.system", RUN)],
)
def test_what_is_no_version_is_not_told(place, told):
    put_in(place, skops_file(thing(LOGISTIC, _sklearn_version=told)))
    assert refused(place).startswith("path: the stored classifier is damaged")


def test_another_version_excuses_no_payload(place):
    put_in(place, skops_file(thing(LOGISTIC, _sklearn_version=text("99.1.0"), coef_=call("os.system", RUN))))
    assert "it would call or make os.system" in refused(place)


def plain(**changes):
    return {"type": "LogisticRegression", "params": {}, "prefix": "", **changes}


CONFIGS = {
    "an estimator by its full name": {"estimator": "os.system"},
    "an estimator of the module": {"estimator": f"{MARKER}.Anything"},
    "an estimator of one's own": {"own_class": f"{MARKER}.Anything"},
    "a path to the weights": {"weights": "/dev/stdin"},
    "a parameter of a type to import": {"params": {"cv": {"type": f"{MARKER}.Anything", "fields": {}}}},
    "a parameter of a type that runs": {"params": {"cv": {"type": "os.system", "fields": {"command": "touch ran"}}}},
    "a hidden type in the fields of another": {"params": {"cv": {"type": "APP", "fields": {
        "bag_size": {"type": "subprocess.Popen", "fields": {"args": "touch ran"}}}}}},
    "a plain classifier to import": {"params": {"classifier": {"sklearn": plain(type=f"{MARKER}.Anything")}}},
    "a plain parameter that is an object": {"params": {"classifier": {"sklearn": plain(
        params={"C": {"skops": "touch ran"}})}}},
    "a plain parameter of another name": {"params": {"classifier": {"sklearn": plain(params={"__class__": "os"})}}},
    "a plain pipeline with a cache": {"params": {"classifier": {"sklearn": {"type": "Pipeline", "memory": "ran",
                                                                           "steps": [["x", 7]]}}}},
    "a pipeline of itself": {"params": {"classifier": {"sklearn": {"type": "Pipeline", "steps": [
        ["x", {"type": "Pipeline", "steps": []}]]}}}},
    "skops that is no text": {"params": {"classifier": {"skops": ["os.system"]}}},
    "learned values that trust": {"learned": {"trust": ["posix.system"], "classifier": {"type": "os.system"}}},
    "a custom parameter": {"params": {"classifier": {"custom": "os.system"}}},
}  # fmt: skip


@pytest.mark.parametrize("kind", CONFIGS)
def test_manifests_do_nothing(place, kind):
    config, _ = stored(place / "model")
    forge(place / "model", config | CONFIGS[kind], {} if "learned" in CONFIGS[kind] else None)
    refused(place)


def test_there_are_enough_payloads():
    assert len(PARTS) * len(HIDDEN_IN) + len(FILES) + len(CONFIGS) >= 40


def test_what_a_file_says_about_trust_is_not_believed(place):
    put_in(place, skops_file(thing("sklearn.svm._classes.SVC")))
    config, _ = stored(place / "model")
    config["learned"]["trust"] = ["sklearn.svm._classes.SVC"]
    forge(place / "model", config)
    assert "holds sklearn.svm._classes.SVC, which can run code" in refused(place)


def test_only_classes_where_they_are_defined_are_trusted(place):
    put_in(place, skops_file(thing("sklearn.utils._testing.groupby")))
    with pytest.raises(ValueError, match=r"trust: sklearn\.utils\._testing\.groupby is not a class that is"):
        hq.load(place / "model", trust=["sklearn.utils._testing.groupby"])


def test_a_module_that_is_called_like_compiled_losses_is_not_imported(place, tmp_path, monkeypatch):
    (tmp_path / "_loss.py").write_text("class Own: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    put_in(place, skops_file(thing("_loss.Own")))
    with pytest.raises(ValueError, match=r"trust: _loss\.Own is not a class that is"):
        hq.load(place / "model", trust=["_loss.Own"])


class Own(LogisticRegression):
    """A user's own classifier."""


@pytest.mark.parametrize("classifier", [
    DecisionTreeClassifier(max_depth=3, random_state=0), GradientBoostingClassifier(n_estimators=2, random_state=0),
    Own(),
], ids=lambda classifier: type(classifier).__name__)  # fmt: skip
def test_classifiers_of_ones_own_ask_for_trust(classifier, tmp_path):
    X, y = labelled()
    q = hq.CC(classifier, random_state=0).fit(X, y)
    q.save(tmp_path / "model")
    own = {"classifier": Own()} if type(classifier) is Own else {}
    with pytest.raises(ValueError, match=r"which can run code when it is loaded; if you .*trust=\["):
        hq.load(tmp_path / "model", **own)
    names = types_to_trust(tmp_path / "model", **own)
    back = hq.load(tmp_path / "model", trust=names, **own)
    np.testing.assert_array_equal(back.predict(X), q.predict(X))
    with pytest.raises(ValueError, match="which can run code"):
        hq.load(tmp_path / "model", trust=[n for n in names if type(classifier).__name__ not in n], **own)
    with pytest.raises(TypeError, match="trust: expected a list of full names of classes, got 'all'"):
        hq.load(tmp_path / "model", trust="all")


def test_texts_ask_for_trust(tmp_path):
    texts, y = np.array(["good fish", "bad cod", "good cod", "bad fish"] * 10), np.array(["g", "b", "g", "b"] * 10)
    q = hq.ACC(make_pipeline(TfidfVectorizer(), LogisticRegression()), random_state=0).fit(texts, y)
    q.save(tmp_path / "model")
    names = [f"sklearn.feature_extraction.text.{name}" for name in ("TfidfTransformer", "TfidfVectorizer")]
    np.testing.assert_array_equal(hq.load(tmp_path / "model", trust=names).predict(texts), q.predict(texts))
