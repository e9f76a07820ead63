"""Files like those of `torch.save`, put together by hand from opcodes, without PyTorch."""

import struct
import zipfile

MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
KINDS = {"float32": "Float", "float16": "Half", "int64": "Long"}


def name(module, attribute):
    return f"c{module}\n{attribute}\n".encode()


DICT = name("collections", "OrderedDict")
ORDERED = DICT + b")R"
PARAMETER = name("torch._utils", "_rebuild_parameter")
REBUILD = name("torch._utils", "_rebuild_tensor_v2")


def value(x):
    """Return the opcodes that push a value; bytes are opcodes already."""
    if isinstance(x, bytes):
        return x
    if isinstance(x, str):
        text = x.encode("utf-8", "surrogatepass")
        return b"X" + struct.pack("<I", len(text)) + text
    if isinstance(x, bool) or x is None:
        return {True: b"\x88", False: b"\x89", None: b"N"}[x]
    if isinstance(x, int):
        number = x.to_bytes(x.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes([len(number)]) + number
    if isinstance(x, float):
        return b"G" + struct.pack(">d", x)
    if isinstance(x, dict):
        return b"}(" + b"".join(value(k) + value(v) for k, v in x.items()) + b"u"
    start, end = {tuple: (b"(", b"t"), list: (b"](", b"e")}[type(x)]
    return start + b"".join(map(value, x)) + end


def storage(key="0", size=4, kind="Float", **more):
    kind = kind if isinstance(kind, bytes) else name("torch", f"{kind}Storage")
    return value(("storage", kind, key, "cpu", size, *more.values())) + b"Q"


def tensor(where=None, offset=0, shape=(2, 2), strides=(2, 1), **more):
    where = storage(**more) if where is None else where
    return REBUILD + value((where, offset, shape, strides, False, ORDERED)) + b"R"


def state(**entries):
    return b"\x80\x02" + value(entries) + b"."


def write_zip(file, pickle, storages=None, *, order=b"little", folder="archive", **options):
    with zipfile.ZipFile(file, "w", **options) as archive:
        archive.writestr(f"{folder}/data.pkl", pickle)
        archive.writestr(f"{folder}/byteorder", order)
        for key, content in (storages or {"0": bytes(16)}).items():
            archive.writestr(f"{folder}/data/{key}", content)
    return file


def old(pickle, keys=("0",), storages=((4, bytes(16)),), version=1001, little_endian=True):
    parts = [value(version), value({"little_endian": little_endian})]
    start = MAGIC + b"".join(b"\x80\x02" + part + b"." for part in parts)
    values = b"".join(struct.pack("<q", size) + content for size, content in storages)
    return start + pickle + b"\x80\x02" + value(list(keys)) + b"." + values


def write_arrays(file, arrays):
    """Write a state dict of NumPy arrays."""
    entries = {}
    for key, array in enumerate(arrays.values()):
        strides = tuple(stride // array.itemsize for stride in array.strides)
        kind = KINDS[array.dtype.name]
        where = storage(str(key), array.size, kind)
        entries[[*arrays][key]] = tensor(where, 0, array.shape, strides)
    contents = {str(key): array.tobytes() for key, array in enumerate(arrays.values())}
    return write_zip(file, state(**entries), contents)
