"""Settings, a view and its address: a chat endpoint in one module."""

from django.http import HttpRequest, HttpResponse
from django.urls import path
from openai import OpenAI

SECRET_KEY = "only for this test"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = __name__
USE_TZ = True
MIDDLEWARE: list[str] = []


def ask(request: HttpRequest, customer: str) -> HttpResponse:
    """The whole answer of a call that is not streamed."""
    answer = OpenAI().chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": request.GET["question"]}]
    )
    return HttpResponse(answer.choices[0].message.content)


urlpatterns = [path("ask/<str:customer>", ask)]
