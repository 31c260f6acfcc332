"""Sparse tensors written by Arrow C++ 26 (`arrow::ipc::WriteSparseTensor`), which pyarrow does not expose.

CUBE is float32 with dimensions x, y, z; MATRIX is int64 without names. Compressed with zlib, in base 64.
"""

from __future__ import annotations

from base64 import b64decode
from zlib import decompress

import numpy as np

CUBE = np.zeros((2, 3, 4), np.float32)
CUBE[[0, 0, 0, 1, 1], [0, 1, 1, 0, 2], [1, 1, 2, 0, 3]] = [1, 2, 3, 4, 5]
MATRIX = np.array([[0, 1, 2, 0], [0, 0, 0, 0], [3, 0, 0, 4]])

_COMPRESSED = {
    "coo": (
        "eNp1UDsSwiAUXPKTgoLJZBxLCwsLCw/gjDmAB4pWOYJH8HgewB73vUDEgs0skP0wQAghjAYYsMBhiw4tLFdOhLbBntMTCT3O"
        "TIh/wAaezV712nw4zuSJnGJ6F+cWP0hT+p59t0jmkmWR9QVV5tlMlz0s94iaGeUU5I08kg355v1cXGuIfGjXk412Xewl/67+"
        "sPo+ngFZZtI36Pgl5R+m8F/Sq4JfytWrM1858OojOZMveQZ8AXSCE7I="
    ),
    "csr": (
        "eNp1T7kNAjEQHD8HDk4n64QQAYEDAgKECAgJrhQKoRAKoCi6MWP7DIsRI433mX28Mca4V8AKBT3WWKCDo9enRGcRaK6oGHFk"
        "RdJ3WMKzc8x5rZ98b+SBnObqMFv77h9wzrHDlupA/4IPgvA3Ipb5O/9Mo9KOh/A1eco3gNM9mbaU2OIbjv+uuicNfpFudLzR"
        "lVBNQtONrfNVk68wf3TT9L8AikwR+A=="
    ),
    "csc": (
        "eNptTzkOwjAQnDgJuIiiKIoQpQsKyoiKgoKSp/AQHsEDeBg/cWadNVoMI+19zcYY41wBE1Z02GGDFp5eJ4m2QaC5I2PEiR1S"
        "P2CLgZNjyjv3pn5QZspNu4PaBhY9zrojcEufchUupuNo/L2Jg8k/yV0Gr1Qv4zvlIPw9GXpe9xp/85D69KkPlBq/EJ6ev/o1"
        "TDcyKrVObV386/AfZX+5J88vy00SUw=="
    ),
    "csf": (
        "eNp9UDEOgkAQHORAigshhBhLCwtL4wfkARQ+xVKteIQFpU/wOT7BB9jj7LGY40JcMtljdnfudvq+77sIqDCExQopEmQ8WSES"
        "gw3TE2OUOLBD6lssUXCydHwcN9R58bQnOu1ea07gR07eOA2Zz8ncCbnnQtSEEUXtpiwWijHiP/qxasCbOWk2ms/B3Ic+yFUy"
        "J+/KuFum19eq2RA71Xiz33p68sabmy0I42ZtsMPV1atfvQh2itz+4m3Kb2SmexhMIwr8MLN++0rz/4uAjwI+9B1oj4PNNdES"
        "D2f5F6apGgY="
    ),
}
MESSAGES = {name: decompress(b64decode(text)) for name, text in _COMPRESSED.items()}
