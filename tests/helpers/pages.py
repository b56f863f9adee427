"""The data of an explorer's page, read from its HTML."""

import json
import re

from posenc.show.explorer import packing


def page_data(html):
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    return packing.unpacked(json.loads(found))
