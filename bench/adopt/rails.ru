# The application that rails.py serves: posts with comments in SQLite, a page that renders some of them by ERB, an
# export of many as JSON, and a cache that keeps the last answers.
require "action_controller/railtie"
require "active_record"
require "logger"

ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ENV.fetch("ADOPT_DATABASE"), pool: 16)
ActiveRecord::Schema.verbose = false
ActiveRecord::Schema.define do
  create_table(:posts) { |t| t.string :title; t.text :body; t.timestamps }
  create_table(:comments) { |t| t.belongs_to :post, index: true; t.string :author; t.text :body }
end

class Comment < ActiveRecord::Base; end
class Post < ActiveRecord::Base
  has_many :comments
end

numbers = Random.new(1)
Post.transaction do
  300.times do |i|
    post = Post.create!(title: "Post #{i}", body: "word " * numbers.rand(20..800))
    numbers.rand(0..8).times { |c| Comment.create!(post_id: post.id, author: "author #{c}", body: "x" * numbers.rand(400)) }
  end
end

PAGE = <<~ERB
  <html><body><% @posts.each do |post| %>
    <article><h1><%= post.title %></h1><p><%= post.body.gsub("word", "<b>word</b>") %></p>
    <% post.comments.each do |comment| %><blockquote><%= comment.author %>: <%= comment.body %></blockquote><% end %>
    </article>
  <% end %></body></html>
ERB

class PostsController < ActionController::Base
  CACHE = ActiveSupport::Cache::MemoryStore.new(size: 4 << 20)

  def index
    @posts = Post.includes(:comments).offset(params[:from].to_i).limit(params[:count].to_i).to_a
    page = render_to_string(inline: PAGE)
    CACHE.write("page #{params[:from]}", page)
    render html: page.html_safe
  end

  def export
    posts = Post.includes(:comments).limit(params[:count].to_i)
    render json: posts.map { |post| post.as_json(include: :comments) }
  end
end

class Application < Rails::Application
  config.eager_load = true
  config.logger = Logger.new(nil)
  config.secret_key_base = "adopt" * 10
  config.hosts.clear
  config.root = __dir__
  routes.append do
    get "/posts" => "posts#index"
    get "/export" => "posts#export"
  end
end
Application.initialize!
run Application
