"""Everything measured together: encodings side by side, looked at closely, a real model read."""
