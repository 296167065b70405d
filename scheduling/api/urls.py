"""Where programs reach models and rules."""

from django.urls import path

from scheduling.api.planning import PlanView, WhyView

urlpatterns = [
    path("scheduling/plan", PlanView.as_view()),
    path("scheduling/why", WhyView.as_view()),
]
