"""The admin site itself, and the pages of the project's own models."""

from unfold.sites import UnfoldAdminSite


class ClusterAdminSite(UnfoldAdminSite):
    """The operator's console."""

    enable_nav_sidebar = True
