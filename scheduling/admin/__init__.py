"""The operator's pages about models; each module is one page or one part of one."""

from scheduling.admin import models, nodetabs, rules

__all__ = ["models", "nodetabs", "rules"]
